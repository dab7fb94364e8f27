"""What looks back on recorded sessions, or at a machine: replay, audit, simulate, report, watch, doctor."""
