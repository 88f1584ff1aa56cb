# %% solution
def count_words(input, ctx, idem_key):
    text = ctx[0]["text"]
    return {"words": len(text.split())}
# %% wrong: these notes have
def count_words(input, ctx, idem_key):
    return {"words": len(ctx[0]["text"])}
# %% wrong: is of type set
def count_words(input, ctx, idem_key):
    return {"words": set(ctx[0]["text"].split())}
