"""LangGraph: three nodes in a row, SqliteSaver, durability `sync`. `setup` makes its tables.

A start without a checkpoint begins; one that finds a checkpoint goes on from it with None as input.
"""

import sqlite3
import sys
from typing import TypedDict

import task
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph


class State(TypedDict, total=False):
    text: str
    summary: str
    sent: str


builder = StateGraph(State)
builder.add_node("fetch", lambda state: {"text": task.fetch()})
builder.add_node("summarize", lambda state: {"summary": task.summarize(state["text"])})
builder.add_node("send", lambda state: {"sent": task.send(state["summary"])})
for before, after in ((START, "fetch"), ("fetch", "summarize"), ("summarize", "send")):
    builder.add_edge(before, after)
builder.add_edge("send", END)

saver = SqliteSaver(sqlite3.connect("langgraph.db", check_same_thread=False))
graph = builder.compile(checkpointer=saver)
config = {"configurable": {"thread_id": "t"}}
if sys.argv[1:] == ["setup"]:
    saver.setup()
else:
    is_new = graph.get_state(config).created_at is None
    graph.invoke({} if is_new else None, config, durability="sync")
    task.finished(graph.get_state(config).values["sent"])
