"""The pure core: events in, snapshots out. It opens no file, reads no clock, waits for nothing and logs nothing."""
