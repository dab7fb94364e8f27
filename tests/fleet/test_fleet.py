"""A fleet in one process, played from recordings: nothing lost, however it ends."""

import pytest

from mala_context.analysis.replay import replay
from tests.benchmarks import fleet_simulation as simulation
from tests.benchmarks.fleet_simulation import Fleet


def test_every_session_is_tracked_archived_and_sent(tmp_path):
    with Fleet(tmp_path, 9) as fleet:
        rows, events = fleet.run()
    assert rows == sum(len(session.source.lines) for session in fleet.sessions)
    assert events > 0.9 * rows
    assert len(fleet.waits) == 2 * len(fleet.sessions), "one archive before the compaction, one at the end"
    simulation.check_end(str(tmp_path))
    assert fleet.uploaded_bytes >= sum(len(line) for session in fleet.sessions for line in session.source.lines)


def test_trackers_side_by_side_say_what_replay_says(tmp_path):
    with Fleet(tmp_path, 6, upload=False) as fleet:
        fleet.run()
    for session in fleet.sessions:
        (record,) = replay([session.transcript], jobs=1)
        snapshot = session.tracker.snapshot()
        assert (snapshot.tokens, snapshot.responses) == (record.main.tokens, record.main.responses)
        assert snapshot.compactions == len(record.compactions) == 1


def test_a_paced_fleet_plays_on_time_what_is_due(tmp_path):
    with Fleet(tmp_path, 5, upload=False) as fleet:
        late = fleet.run_paced(400, 0.5)
    assert len(late) == 200
    assert min(late) >= 0.0
    assert sum(session.at for session in fleet.sessions) <= 200


def test_a_lost_piece_would_be_seen(tmp_path):
    with Fleet(tmp_path, 1) as fleet:
        fleet.run()
    piece = max((tmp_path / "store" / "one").glob("*_transcript.jsonl"))
    piece.write_bytes(piece.read_bytes()[:-1])
    with pytest.raises(AssertionError, match="holds"):
        simulation.check_end(str(tmp_path))
    with pytest.raises(AssertionError, match="not what was acknowledged"):
        simulation.check(str(tmp_path), {piece.name: "0" * 64})


@pytest.mark.long
@pytest.mark.timeout(300)
def test_killed_ten_times_it_loses_nothing(tmp_path):
    assert simulation.kill(str(tmp_path), 10, seed=3, sessions=3) >= 6


@pytest.mark.long
@pytest.mark.timeout(1_500)
def test_killed_two_hundred_times_it_loses_nothing(tmp_path):
    assert simulation.kill(str(tmp_path), 200, seed=4) > 200
