# %% solution
def publish(input, ctx, idem_key):
    import os

    final, content = f"artifacts/{idem_key}.md", ctx[0]["text"].encode()
    temporary = f"artifacts/.{idem_key}.{os.urandom(4).hex()}.tmp"
    with open(temporary, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, final)
    except FileExistsError:
        with open(final, "rb") as file:
            if file.read() != content:
                raise
    finally:
        os.unlink(temporary)
    folder = os.open("artifacts", os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    return {"path": final}
# %% wrong: the report was published 2 times
def publish(input, ctx, idem_key):
    import os

    with open("artifacts/report.log", "a") as file:
        file.write(ctx[0]["text"])
        file.flush()
        os.fsync(file.fileno())
    return {"path": "artifacts/report.log"}
# %% wrong: is an empty file
def publish(input, ctx, idem_key):
    import os

    final = f"artifacts/{idem_key}.md"
    with open(final, "w") as file:
        file.write(ctx[0]["text"])
        file.flush()
        os.fsync(file.fileno())
    return {"path": final}
# %% wrong: FileExistsError
def publish(input, ctx, idem_key):
    import os

    final, temporary = f"artifacts/{idem_key}.md", f"artifacts/.{os.urandom(4).hex()}.tmp"
    with open(temporary, "w") as file:
        file.write(ctx[0]["text"])
        file.flush()
        os.fsync(file.fileno())
    os.link(temporary, final)
    os.unlink(temporary)
    return {"path": final}
# %% wrong: it was replaced or changed
def publish(input, ctx, idem_key):
    import os

    final, temporary = f"artifacts/{idem_key}.md", f"artifacts/.{idem_key}.tmp"
    with open(temporary, "w") as file:
        file.write(ctx[0]["text"])
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, final)
    folder = os.open("artifacts", os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    return {"path": final}
# %% wrong: as if its report were published
def publish(input, ctx, idem_key):
    import os

    final, temporary = f"artifacts/{idem_key}.md", f"artifacts/.{os.urandom(4).hex()}.tmp"
    with open(temporary, "w") as file:
        file.write(ctx[0]["text"])
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, final)
    except FileExistsError:
        pass
    os.unlink(temporary)
    folder = os.open("artifacts", os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    return {"path": final}
# %% wrong: fsync the file before it gets its name
def publish(input, ctx, idem_key):
    import os

    final, content = f"artifacts/{idem_key}.md", ctx[0]["text"].encode()
    temporary = f"artifacts/.{idem_key}.{os.urandom(4).hex()}.tmp"
    with open(temporary, "xb") as file:
        file.write(content)
    try:
        os.link(temporary, final)
    except FileExistsError:
        with open(final, "rb") as file:
            if file.read() != content:
                raise
    finally:
        os.unlink(temporary)
    folder = os.open("artifacts", os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    return {"path": final}
# %% wrong: fsync the folder when the name is in it
def publish(input, ctx, idem_key):
    import os

    final, content = f"artifacts/{idem_key}.md", ctx[0]["text"].encode()
    temporary = f"artifacts/.{idem_key}.{os.urandom(4).hex()}.tmp"
    with open(temporary, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, final)
    except FileExistsError:
        with open(final, "rb") as file:
            if file.read() != content:
                raise
    finally:
        os.unlink(temporary)
    return {"path": final}
# %% wrong: make the name from idem_key
def publish(input, ctx, idem_key):
    from labkit.files import publish_once

    publish_once("artifacts", "report.md", ctx[0]["text"].encode())
    return {"path": "artifacts/report.md"}
