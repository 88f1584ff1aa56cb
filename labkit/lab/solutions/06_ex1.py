# %% solution
def publish(folder, name, content):
    import os

    final = os.path.join(folder, name)
    temporary = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.tmp")
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
    opened = os.open(folder, os.O_RDONLY)
    os.fsync(opened)
    os.close(opened)
# %% wrong: holds the report 2 times
def publish(folder, name, content):
    import os

    with open(os.path.join(folder, "report.log"), "ab") as file:
        file.write(content + b"\n---\n")
# %% wrong: the same report stands under 2 names
def publish(folder, name, content):
    import os

    with open(os.path.join(folder, os.urandom(4).hex() + name), "wb") as file:
        file.write(content)
# %% wrong: Called again with the same content, it raised FileExistsError: File exists: week-7.md. The
def publish(folder, name, content):
    import os

    final = os.path.join(folder, name)
    temporary = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.tmp")
    with open(temporary, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.link(temporary, final)
    os.unlink(temporary)
# %% wrong: in the middle of its write, it left half a report under week-7.md
def publish(folder, name, content):
    import os

    if not os.path.exists(os.path.join(folder, name)):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
# %% wrong: and called again, it raised FileExistsError
def publish(folder, name, content):
    import os

    final = os.path.join(folder, name)
    temporary = os.path.join(folder, f".{name}.tmp")
    if os.path.exists(final):
        return
    with open(temporary, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.link(temporary, final)
    os.unlink(temporary)
# %% wrong: An open for writing and a rename replace what they find
def publish(folder, name, content):
    import os

    temporary = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.tmp")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, os.path.join(folder, name))
    opened = os.open(folder, os.O_RDONLY)
    os.fsync(opened)
    os.close(opened)
# %% wrong: A look comes too early
def publish(folder, name, content):
    import os

    final = os.path.join(folder, name)
    if os.path.exists(final):
        with open(final, "rb") as file:
            if file.read() != content:
                raise ValueError(f"{name} has other content")
        return
    temporary = os.path.join(folder, f".{name}.tmp")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, final)
# %% wrong: returned as if its report were published
def publish(folder, name, content):
    import os

    temporary = os.path.join(folder, f".{name}.tmp")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, os.path.join(folder, name))
    except FileExistsError:
        pass
    os.unlink(temporary)
# %% wrong: At its fsync 0 of
def publish(folder, name, content):
    import os

    final = os.path.join(folder, name)
    temporary = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.tmp")
    with open(temporary, "xb") as file:
        file.write(content)
        os.fsync(file.fileno())
    try:
        os.link(temporary, final)
    except FileExistsError:
        with open(final, "rb") as file:
            if file.read() != content:
                raise
    finally:
        os.unlink(temporary)
# %% wrong: It never calls fsync on the file
def publish(folder, name, content):
    import os
    from pathlib import Path

    final = Path(folder, name)
    temporary = Path(folder, f".{name}.{os.urandom(4).hex()}.tmp")
    temporary.write_bytes(content)
    try:
        final.hardlink_to(temporary)
    except FileExistsError:
        if final.read_bytes() != content:
            raise
    finally:
        temporary.unlink()
# %% wrong: It never calls fsync on the folder
def publish(folder, name, content):
    import os

    final = os.path.join(folder, name)
    temporary = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.tmp")
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
# %% wrong: found its file and returned without fsync of the folder
def publish(folder, name, content):
    import os

    final = os.path.join(folder, name)
    temporary = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.tmp")
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
        return
    finally:
        os.unlink(temporary)
    opened = os.open(folder, os.O_RDONLY)
    os.fsync(opened)
    os.close(opened)
# %% wrong: were one file with two names
def publish(folder, name, content):
    import os

    final = os.path.join(folder, name)
    temporary = os.path.join(folder, f".{name}.tmp")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, final)
    except FileExistsError:
        with open(final, "rb") as file:
            if file.read() != content:
                raise
    os.unlink(temporary)
    opened = os.open(folder, os.O_RDONLY)
    os.fsync(opened)
    os.close(opened)
