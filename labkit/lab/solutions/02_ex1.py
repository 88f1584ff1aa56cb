# %% solution
def count_words(input, ctx, idem_key):
    text = ctx[0]["text"]
    return {"words": len(text.split())}
# %% wrong: these notes have 39 words
def count_words(input, ctx, idem_key):
    return {"words": len(ctx[0]["text"])}
# %% wrong: is of type set
def count_words(input, ctx, idem_key):
    return {"words": set(ctx[0]["text"].split())}
# %% wrong: other notes, of the check's own, have 16 words
def count_words(input, ctx, idem_key):
    return {"words": 39}
# %% wrong: A print is no output
def count_words(input, ctx, idem_key):
    print({"words": len(ctx[0]["text"].split())})
# %% wrong: count_words uses json, lab from outside
def count_words(input, ctx, idem_key):
    text = json.loads(lab.journal().steps().output[0])["text"]
    return {"words": len(text.split())}
# %% wrong: Your function raised KeyError: 'texts' in the first run; mend it
def count_words(input, ctx, idem_key):
    return {"words": len(ctx[0]["texts"].split())}
