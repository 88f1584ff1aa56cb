"""LangGraph: one node in a loop, SqliteSaver, `sync`: a step is stored before the next begins."""

import sqlite3
from typing import TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from marks import LAST, mark


class State(TypedDict):
    idx: int


def step(state: State) -> State:
    mark(state["idx"])
    return {"idx": state["idx"] + 1}


builder = StateGraph(State)
builder.add_node("step", step)
builder.add_edge(START, "step")
builder.add_conditional_edges("step", lambda state: END if state["idx"] > LAST else "step")
saver = SqliteSaver(sqlite3.connect("langgraph.db", check_same_thread=False))
graph = builder.compile(checkpointer=saver)
config = {"configurable": {"thread_id": "t"}, "recursion_limit": LAST + 10}
is_new = graph.get_state(config).created_at is None
graph.invoke({"idx": 0} if is_new else None, config, durability="sync")
