# %% solution
def take_steps(steps, call):
    import json
    from pathlib import Path

    memory = Path("memory.json")
    done = json.loads(memory.read_text()) if memory.exists() else []
    for step in steps[len(done) :]:
        done.append(call(step, done))
        memory.write_text(json.dumps(done))
# %% wrong: process 1 had left memory.json, and its step was called again
def take_steps(steps, call):
    import json
    from pathlib import Path

    done = []
    for step in steps[len(done) :]:
        done.append(call(step, done))
        Path("memory.json").write_text(json.dumps(done))
# %% wrong: process 1 left no file when it was killed
def take_steps(steps, call):
    import json
    from pathlib import Path

    memory = Path("memory.json")
    done = json.loads(memory.read_text()) if memory.exists() else []
    for step in steps[len(done) :]:
        done.append(call(step, done))
    memory.write_text(json.dumps(done))
# %% wrong: Was it stored as done before it was
def take_steps(steps, call):
    import json
    from pathlib import Path

    memory = Path("memory.json")
    done = json.loads(memory.read_text()) if memory.exists() else []
    for step in steps[len(done) :]:
        memory.write_text(json.dumps([*done, {}]))
        done.append(call(step, done))
# %% wrong: waits in memory until it is flushed or closed
def take_steps(steps, call):
    import json

    with open("memory.jsonl", "a+") as memory:
        memory.seek(0)
        done = [json.loads(line) for line in memory]
        for step in steps[len(done) :]:
            done.append(call(step, done))
            memory.write(json.dumps(done[-1]) + "\n")
# %% wrong: does your function look in another one
def take_steps(steps, call):
    done = [None, None, None]
    for step in steps[len(done) :]:
        done.append(call(step, done))
# %% wrong: Extra data
def take_steps(steps, call):
    import json
    from pathlib import Path

    memory = Path("memory.json")
    done = json.loads(memory.read_text()) if memory.exists() else []
    for step in steps[len(done) :]:
        done.append(call(step, done))
        with memory.open("a") as file:
            file.write(json.dumps(done))
# %% wrong: uses json from outside
def take_steps(steps, call):
    done = []
    for step in steps[len(done) :]:
        done.append(call(step, done))
        open("memory.json", "w").write(json.dumps(done))
# %% wrong: was started after that called write_artifact again
def take_steps(steps, call):
    import json
    from pathlib import Path

    memory = Path("memory.json")
    done = json.loads(memory.read_text()) if memory.exists() else []
    for step in steps[len(done) :]:
        memory.write_text(json.dumps(done))
        done.append(call(step, done))
# %% wrong: `done` held no output of step 0
def take_steps(steps, call):
    from pathlib import Path

    memory = Path("memory.txt")
    count = int(memory.read_text()) if memory.exists() else 0
    done = []
    for number, step in enumerate(steps[count:], start=count + 1):
        done.append(call(step, done))
        memory.write_text(str(number))
