"""The live side: what wires tracking, archive and guard into an agent, and acts on what they say."""
