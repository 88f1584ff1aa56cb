# %% solution
guard = """
    run_id = :run_id
    AND lease_epoch = :epoch
    AND version = :version
    AND :now < lease_expires_at
"""
# %% wrong: another ann has taken over: your guard lets the write pass
guard = """
    run_id = :run_id
    AND lease_owner = :owner
    AND version = :version
    AND :now < lease_expires_at
"""
# %% wrong: in the second in which the lease ends: your guard lets the write pass
guard = """
    run_id = :run_id
    AND lease_epoch = :epoch
    AND version = :version
    AND :now <= lease_expires_at
"""
# %% wrong: five seconds after the end: your guard lets the write pass
guard = """
    run_id = :run_id
    AND lease_epoch = :epoch
    AND version = :version
"""
# %% wrong: by a version of before: your guard lets the write pass
guard = """
    run_id = :run_id
    AND lease_epoch = :epoch
    AND :now < lease_expires_at
"""
# %% wrong: bob has taken over: your guard lets the write pass
guard = """
    run_id = :run_id
    AND version = :version
    AND :now < lease_expires_at
"""
# %% wrong: the write changes another run too
guard = """
    lease_epoch = :epoch
    AND version = :version
    AND :now < lease_expires_at
"""
# %% wrong: your guard refuses the write, and it is good
guard = """
    run_id = :run_id
    AND lease_epoch < :epoch
    AND version = :version
    AND :now < lease_expires_at
"""
# %% wrong: SQLite cannot read it: no such column: epoch
guard = """
    run_id = :run_id
    AND epoch = :epoch
    AND version = :version
    AND :now < expires_at
"""
