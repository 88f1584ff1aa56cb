# %% solution
def ask(input, ctx, idem_key):
    import json
    import os
    import urllib.request
    from pathlib import Path

    answers = []
    for number, question in enumerate(input["questions"]):
        kept = Path(f"{idem_key}-answer-{number}.txt")
        if not kept.exists():
            asked = {"model": "llama3.2", "prompt": question, "stream": False}
            url = os.environ["OLLAMA_URL"] + "/api/generate"
            with urllib.request.urlopen(url, json.dumps(asked).encode()) as reply:
                text = json.load(reply)["response"]
            half = kept.with_suffix(".tmp")
            half.write_text(text, encoding="utf-8")
            half.replace(kept)
        answers.append(kept.read_text(encoding="utf-8"))
    return {"answers": answers}
# %% wrong: it was bought 2 times. Nothing in the folder kept it.
def ask(input, ctx, idem_key):
    import json
    import os
    import urllib.request

    answers = []
    for number, question in enumerate(input["questions"]):
        asked = {"model": "llama3.2", "prompt": question, "stream": False}
        url = os.environ["OLLAMA_URL"] + "/api/generate"
        with urllib.request.urlopen(url, json.dumps(asked).encode()) as reply:
            answers.append(json.load(reply)["response"])
    return {"answers": answers}
# %% wrong: given the answers of the first
def ask(input, ctx, idem_key):
    import json
    import os
    import urllib.request
    from pathlib import Path

    answers = []
    for number, question in enumerate(input["questions"]):
        kept = Path(f"answer-{number}.txt")
        if not kept.exists():
            asked = {"model": "llama3.2", "prompt": question, "stream": False}
            url = os.environ["OLLAMA_URL"] + "/api/generate"
            with urllib.request.urlopen(url, json.dumps(asked).encode()) as reply:
                kept.write_text(json.load(reply)["response"])
        answers.append(kept.read_text())
    return {"answers": answers}
# %% wrong: There were 3 questions, and your tool made 1 call
def ask(input, ctx, idem_key):
    import json
    import os
    import urllib.request
    from pathlib import Path

    answers = []
    for question in input["questions"]:
        kept = Path(f"{idem_key}.txt")
        if not kept.exists():
            asked = {"model": "llama3.2", "prompt": question, "stream": False}
            url = os.environ["OLLAMA_URL"] + "/api/generate"
            with urllib.request.urlopen(url, json.dumps(asked).encode()) as reply:
                kept.write_text(json.load(reply)["response"])
        answers.append(kept.read_text())
    return {"answers": answers}
# %% wrong: Question 2 was bought 1 time, and your tool returns ''
def ask(input, ctx, idem_key):
    import json
    import os
    import urllib.request
    from pathlib import Path

    answers = []
    for number, question in enumerate(input["questions"]):
        kept = Path(f"{idem_key}-{number}.txt")
        if not kept.exists():
            with kept.open("w") as file:
                asked = {"model": "llama3.2", "prompt": question, "stream": False}
                url = os.environ["OLLAMA_URL"] + "/api/generate"
                with urllib.request.urlopen(url, json.dumps(asked).encode()) as reply:
                    file.write(json.load(reply)["response"])
        answers.append(kept.read_text())
    return {"answers": answers}
# %% wrong: What is kept may go only after the commit
def ask(input, ctx, idem_key):
    import json
    import os
    import urllib.request
    from pathlib import Path

    answers = []
    for number, question in enumerate(input["questions"]):
        kept = Path(f"{idem_key}-{number}.txt")
        if not kept.exists():
            asked = {"model": "llama3.2", "prompt": question, "stream": False}
            url = os.environ["OLLAMA_URL"] + "/api/generate"
            with urllib.request.urlopen(url, json.dumps(asked).encode()) as reply:
                kept.write_text(json.load(reply)["response"])
        answers.append(kept.read_text())
    for path in Path().glob(f"{idem_key}-*.txt"):
        path.unlink()
    return {"answers": answers}
