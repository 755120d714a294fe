"""Rooms for large bodies: kept for the next, never shared, given up when told to."""

import gc

import torch

from service.rooms import KEPT_BYTES, STEP_BYTES, Rooms

SIZE = 5 * STEP_BYTES + 3


def address(room: memoryview) -> int:
    return torch.frombuffer(room, dtype=torch.uint8).data_ptr()


def test_a_room_has_the_size_asked_for() -> None:
    rooms = Rooms()
    for size in (1, 16, STEP_BYTES, SIZE):
        room = rooms.room(size)
        assert len(room) == room.nbytes == size
        assert not room.readonly


def test_a_room_that_nobody_holds_is_used_again() -> None:
    rooms = Rooms()
    room = rooms.room(SIZE)
    first = address(room)
    del room
    assert rooms.free_bytes >= SIZE
    again = rooms.room(SIZE - 1)
    assert address(again) == first
    assert rooms.free_bytes == 0


def test_a_slice_and_a_tensor_of_a_room_keep_it() -> None:
    rooms = Rooms()
    room = rooms.room(SIZE)
    room[:4] = b"abcd"
    part = room[1:3]
    tensor = torch.frombuffer(room[2:4], dtype=torch.uint8)
    del room
    assert rooms.free_bytes == 0
    other = rooms.room(SIZE)
    other[:] = bytes(SIZE)
    assert bytes(part) == b"bc"
    assert tensor.tolist() == [99, 100]
    del part
    assert rooms.free_bytes == 0
    del tensor
    assert rooms.free_bytes >= SIZE


def test_a_small_body_does_not_take_a_large_room() -> None:
    rooms = Rooms()
    room = rooms.room(SIZE)
    del room
    kept = rooms.free_bytes
    small = rooms.room(STEP_BYTES)
    assert rooms.free_bytes == kept
    assert len(small) == STEP_BYTES


def test_no_more_than_so_much_is_kept_free() -> None:
    rooms = Rooms()
    held = [rooms.room(KEPT_BYTES // 4) for _ in range(6)]
    held.clear()
    assert rooms.free_bytes == KEPT_BYTES
    rooms.trim()
    assert rooms.free_bytes == 0


def test_a_room_comes_back_from_a_cycle() -> None:
    rooms = Rooms()
    cycle: list[object] = [rooms.room(SIZE)]
    cycle.append(cycle)
    del cycle
    assert rooms.free_bytes == 0
    gc.collect()
    assert rooms.free_bytes >= SIZE
