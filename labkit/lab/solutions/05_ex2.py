# %% solution
def publish(input, ctx, idem_key):
    import os

    os.makedirs("artifacts", exist_ok=True)
    path = f"artifacts/{idem_key}.txt"
    with open(path, "w", encoding="utf-8") as file:
        file.write(input["text"])
    return {"path": path}
# %% wrong: stands 3 times, in 1 file; steps 0 and 1 publish it. The second attempt added its text
def publish(input, ctx, idem_key):
    import os

    os.makedirs("artifacts", exist_ok=True)
    with open("artifacts/report.txt", "a", encoding="utf-8") as file:
        file.write(input["text"])
    return {"path": "artifacts/report.txt"}
# %% wrong: stands 3 times, in 2 files; steps 0 and 1 publish it. The second attempt added its text
def publish(input, ctx, idem_key):
    import os

    os.makedirs("artifacts", exist_ok=True)
    path = f"artifacts/{idem_key}.txt"
    with open(path, "a", encoding="utf-8") as file:
        file.write(input["text"])
    return {"path": path}
# %% wrong: The second attempt made a file of its own
def publish(input, ctx, idem_key):
    import os
    import uuid

    os.makedirs("artifacts", exist_ok=True)
    path = f"artifacts/{idem_key}-{uuid.uuid4()}.txt"
    with open(path, "w", encoding="utf-8") as file:
        file.write(input["text"])
    return {"path": path}
# %% wrong: Is its name made of the key?
def publish(input, ctx, idem_key):
    import os

    os.makedirs("artifacts", exist_ok=True)
    with open("artifacts/report.txt", "w", encoding="utf-8") as file:
        file.write(input["text"])
    return {"path": "artifacts/report.txt"}
# %% wrong: stands 1 time, in 1 file; steps 0 and 1 publish it. One step took another one's file
def publish(input, ctx, idem_key):
    import hashlib
    import os

    os.makedirs("artifacts", exist_ok=True)
    path = f"artifacts/{hashlib.sha256(input['text'].encode()).hexdigest()}.txt"
    with open(path, "w", encoding="utf-8") as file:
        file.write(input["text"])
    return {"path": path}
# %% wrong: found the file, took it for whole, and never wrote it
def publish(input, ctx, idem_key):
    import os

    os.makedirs("artifacts", exist_ok=True)
    path = f"artifacts/{idem_key}.txt"
    if not os.path.exists(path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(input["text"])
    return {"path": path}
# %% wrong: FileExistsError
def publish(input, ctx, idem_key):
    import os

    os.makedirs("artifacts", exist_ok=True)
    path = f"artifacts/{idem_key}.txt"
    with open(path, "x", encoding="utf-8") as file:
        file.write(input["text"])
    return {"path": path}
# %% wrong: is of type PosixPath
def publish(input, ctx, idem_key):
    from pathlib import Path

    folder = Path("artifacts")
    folder.mkdir(exist_ok=True)
    path = folder / f"{idem_key}.txt"
    path.write_text(input["text"], encoding="utf-8")
    return {"path": path}
# %% wrong: publish uses os from outside
def publish(input, ctx, idem_key):
    os.makedirs("artifacts", exist_ok=True)
    path = f"artifacts/{idem_key}.txt"
    with open(path, "w", encoding="utf-8") as file:
        file.write(input["text"])
    return {"path": path}
