# %% solution
def open_ticket(request):
    from pathlib import Path

    tickets = Path("tickets.txt")
    lines = tickets.read_text().splitlines() if tickets.exists() else []
    ticket = f"{request.idempotency_key}: see to the pump"
    if ticket not in lines:
        with tickets.open("a") as file:
            file.write(f"{ticket}\n")
        lines.append(ticket)
    return f"ticket {lines.index(ticket) + 1}"
# %% wrong: 5 tickets for 4 steps. The second attempt opened one more
def open_ticket(request):
    from pathlib import Path

    tickets = Path("tickets.txt")
    lines = tickets.read_text().splitlines() if tickets.exists() else []
    with tickets.open("a") as file:
        file.write(f"{request.run_id}: see to the pump\n")
    return f"ticket {len(lines) + 1}"
# %% wrong: 5 tickets for 4 steps. The second attempt opened one more
def open_ticket(request):
    from pathlib import Path

    tickets = Path("tickets.txt")
    lines = tickets.read_text().splitlines() if tickets.exists() else []
    ticket = f"{request.run_id} {request.attempt_id}: see to the pump"
    if ticket not in lines:
        with tickets.open("a") as file:
            file.write(f"{ticket}\n")
        lines.append(ticket)
    return f"ticket {lines.index(ticket) + 1}"
# %% wrong: 2 tickets for 4 steps. Two steps took the same line for theirs
def open_ticket(request):
    from pathlib import Path

    tickets = Path("tickets.txt")
    lines = tickets.read_text().splitlines() if tickets.exists() else []
    ticket = f"{request.step_id}: see to the pump"
    if ticket not in lines:
        with tickets.open("a") as file:
            file.write(f"{ticket}\n")
        lines.append(ticket)
    return f"ticket {lines.index(ticket) + 1}"
# %% wrong: 2 tickets for 4 steps. Two steps took the same line for theirs
def open_ticket(request):
    from pathlib import Path

    tickets = Path("tickets.txt")
    lines = tickets.read_text().splitlines() if tickets.exists() else []
    ticket = f"{request.run_id}: see to the pump"
    if ticket not in lines:
        with tickets.open("a") as file:
            file.write(f"{ticket}\n")
        lines.append(ticket)
    return f"ticket {lines.index(ticket) + 1}"
# %% wrong: the second call gives the answer of the first
def open_ticket(request):
    from pathlib import Path

    tickets = Path("tickets.txt")
    lines = tickets.read_text().splitlines() if tickets.exists() else []
    ticket = f"{request.idempotency_key}: see to the pump"
    if ticket not in lines:
        with tickets.open("a") as file:
            file.write(f"{ticket}\n")
    return f"ticket {len(lines) + 1}"
# %% wrong: was told 'it was opened before; ticket 4'
def open_ticket(request):
    from pathlib import Path

    tickets = Path("tickets.txt")
    lines = tickets.read_text().splitlines() if tickets.exists() else []
    ticket = f"{request.idempotency_key}: see to the pump"
    if ticket in lines:
        return "it was opened before"
    with tickets.open("a") as file:
        file.write(f"{ticket}\n")
    return f"ticket {len(lines) + 1}"
# %% wrong: run monday was told 'ticket 3; ticket 4', and it must be "ticket 1; ticket 4"
def open_ticket(request):
    from pathlib import Path

    tickets = Path("tickets.txt")
    lines = tickets.read_text().splitlines() if tickets.exists() else []
    ticket = f"{request.idempotency_key}: see to the pump"
    if ticket in lines:
        return f"ticket {len(lines)}"
    with tickets.open("a") as file:
        file.write(f"{ticket}\n")
    return f"ticket {len(lines) + 1}"
# %% wrong: The error of its attempt: TypeError: the handler of open_ticket returned a NoneType
def open_ticket(request):
    from pathlib import Path

    tickets = Path("tickets.txt")
    lines = tickets.read_text().splitlines() if tickets.exists() else []
    ticket = f"{request.idempotency_key}: see to the pump"
    if ticket not in lines:
        with tickets.open("a") as file:
            file.write(f"{ticket}\n")
# %% wrong: run monday is FAILED
def open_ticket(request):
    return request["idempotency_key"]
# %% wrong: open_ticket uses Path from outside
def open_ticket(request):
    return Path("tickets.txt").read_text()
