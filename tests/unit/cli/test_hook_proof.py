"""The session that proves whether hooks fire, on the real CLI."""

from mala_context.analysis.doctor.facts import HookProof
from mala_context.cli import hook_proof
from mala_context.cli.hook_proof import prove


class TestProof:
    def test_hooks_fire(self):
        proof = prove()
        assert proof.error is None
        assert proof.archived
        assert 0 < proof.seconds < 60

    def test_a_session_in_which_none_fires(self):
        """With compaction switched off there is no PreCompact."""
        proof = prove(env={"DISABLE_COMPACT": "1"})
        assert (proof.archived, proof.error) == (False, None)

    def test_a_cli_that_is_not_there(self):
        proof = prove(cli_path="/nowhere/claude")
        assert not proof.archived
        assert "not found" in proof.error

    def test_a_cli_that_falls(self):
        proof = prove(cli_path="/bin/false")
        assert isinstance(proof, HookProof)
        assert not proof.archived
        assert proof.error

    def test_one_that_never_answers(self, monkeypatch, tmp_path):
        monkeypatch.setattr(hook_proof, "SECONDS", 0.5)
        program = tmp_path / "claude"
        program.write_text("#!/bin/sh\nexec cat > /dev/null\n")
        program.chmod(0o755)
        assert prove(cli_path=str(program)).error == "it was not over after 0.5 s"
