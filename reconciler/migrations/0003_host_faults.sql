-- Hosts that did not do what they were told, since they last did.
CREATE TABLE host_faults (
    tenant TEXT NOT NULL,
    host   TEXT NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (tenant, host)
) STRICT, WITHOUT ROWID;
