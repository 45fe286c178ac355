"""Operates motor, scaler and sscan records with classes that others wrote for them: ophyd's and pyepics'.

Usage: clients.py ophyd|pyepics. Prints a line for each step that succeeded.
"""

import sys
import threading
import time

PATIENCE = 60


def until(what, condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not reached: {what}")
        time.sleep(0.02)


def near(found, expected, tolerance=1e-3):
    if abs(found - expected) > tolerance:
        raise AssertionError(f"found {found}, expected {expected}")


def raises(kinds, work):
    try:
        work()
    except kinds as error:
        return error
    raise AssertionError(f"expected {kinds}")


def ophyd_motor():
    from ophyd import EpicsMotor
    from ophyd.utils import LimitError

    motor = EpicsMotor("X:m1", name="motor")
    motor.wait_for_connection(timeout=PATIENCE)
    assert motor.egu == "mm" and motor.precision == 3 and motor.limits == (-10, 10), motor.limits

    # ophyd waits for DMOV to fall and to rise, also for a move to the current position.
    for target in (1.5, 1.5, -0.25):
        status = motor.move(target, wait=True, timeout=PATIENCE)
        assert status.done and status.success, status
        near(motor.position, target)
        assert not motor.moving and motor.motor_done_move.get() == 1
    print("ophyd motor: moves, also to the same position")

    raises(LimitError, lambda: motor.move(11))
    near(motor.position, -0.25)
    print("ophyd motor: a position beyond the limits is refused")

    status = motor.move(10, wait=False)
    until("the motor moves", lambda: motor.moving)
    motor.stop()
    until("the motor stops", lambda: not motor.moving)
    until("the move ends", lambda: status.done)
    assert motor.position < 9.9, motor.position
    print("ophyd motor: a stop ends the move")

    motor.move(2, wait=True, timeout=PATIENCE)
    motor.set_current_position(5)
    # ophyd ends the next move with the DMOV of this change, unless it has received it.
    until("the new position", lambda: abs(motor.position - 5) < 1e-3 and not motor._moving)
    near(motor.user_offset.get(), 3)
    assert motor.offset_freeze_switch.get() == 0 and motor.set_use_switch.get() == 0
    motor.user_offset.put(0, wait=True)
    print("ophyd motor: a new current position changes the offset")

    status = motor.home("reverse", wait=True, timeout=PATIENCE)
    assert status.success and motor.motor_done_move.get() == 1, status
    print("ophyd motor: homing ends")

    reading = motor.read()
    assert set(reading) == {"motor", "motor_user_setpoint"}, reading
    assert motor.read_configuration()["motor_motor_egu"]["value"] == "mm"
    moved = []
    motor.subscribe(lambda value, **_: moved.append(value), event_type=motor.SUB_READBACK, run=False)
    motor.move(motor.position + 2, wait=True, timeout=PATIENCE)
    assert len(moved) > 2, moved
    print("ophyd motor: positions are reported during a move")


def ophyd_scaler():
    from ophyd.scaler import EpicsScaler, ScalerCH

    scaler = EpicsScaler("X:scaler1", name="scaler")
    scaler.wait_for_connection(timeout=PATIENCE)
    scaler.preset_time.put(0.5, wait=True)
    scaler.stage()
    assert scaler.count_mode.get() == "OneShot", scaler.count_mode.get()
    for _ in range(2):
        status = scaler.trigger()
        status.wait(timeout=PATIENCE)
        assert scaler.count.get() == 0
        near(scaler.time.get(), 0.5, 0.05)
        channels = scaler.channels.get()
        assert channels.chan1 > 0 and channels.chan2 > 0, channels
    scaler.unstage()
    print("ophyd EpicsScaler: a trigger is complete when the count has ended")

    counters = ScalerCH("X:scaler1", name="counters")
    counters.wait_for_connection(timeout=PATIENCE)
    counters.match_names()
    counters.select_channels(["clock", "diode"])
    counters.stage()
    counters.trigger().wait(timeout=PATIENCE)
    reading = counters.read()
    counters.unstage()
    assert {"clock", "diode", "counters_time"} <= set(reading), reading
    assert reading["clock"]["value"] > 0 and "other" not in reading, reading
    print("ophyd ScalerCH: channels have the names of the record")


def pyepics_motor():
    from epics.motor import Motor, MotorLimitException

    motor = Motor("X:m1")
    assert motor.units == "mm" and motor.precision == 3, motor.units
    for target in (1.0, 1.0, 3.0):
        assert motor.move(target, wait=True, timeout=PATIENCE) == 0
        near(motor.get_position(readback=True), target)
        assert motor.done_moving == 1
    print("pyepics Motor: moves, also to the same position")

    motor.tweak_val = 0.5
    motor.tweak(direction="forward", wait=True)
    near(motor.get_position(readback=True), 3.5)
    motor.tweak(direction="reverse", wait=True)
    near(motor.get_position(readback=True), 3.0)
    motor.move(-0.25, relative=True, wait=True, timeout=PATIENCE)
    near(motor.get_position(readback=True), 2.75)
    motor.move(2.0, dial=True, wait=True, timeout=PATIENCE)
    near(motor.get_position(dial=True, readback=True), 2.0)
    motor.move(2500, raw=True, wait=True, timeout=PATIENCE)
    near(motor.get_position(raw=True, readback=True), 2500)
    print("pyepics Motor: tweaks, relative, dial and raw moves")

    # -12: not sent by the client.
    assert motor.move(11, wait=True) == -12
    motor.move(11, wait=True, ignore_limits=True, timeout=PATIENCE)
    until("the record refuses the target", lambda: motor.get("LVIO") == 1)
    near(motor.get_position(readback=True), 2.5)
    raises(MotorLimitException, motor.check_limits)
    assert motor.within_limits(9.9) and not motor.within_limits(10.1)
    assert motor.move(3, wait=True, timeout=PATIENCE) == 0
    motor.check_limits()
    print("pyepics Motor: a position beyond the limits is refused")

    motor.move(9, wait=False)
    until("the motor moves", lambda: motor.moving == 1)
    motor.stop()
    until("the motor stops", lambda: motor.done_moving == 1)
    assert motor.get_position(readback=True) < 8.9
    print("pyepics Motor: a stop ends the move")

    positions = []
    motor.set_callback("RBV", lambda value, **_: positions.append(value))
    motor.move(0, wait=True, timeout=PATIENCE)
    until("callbacks", lambda: positions and abs(positions[-1]) < 1e-3)
    motor.clear_callback("RBV")
    motor.set_position(4.0)
    until("the new position", lambda: abs(motor.get_position(readback=True) - 4.0) < 1e-3)
    near(motor.offset, 4.0)
    motor.offset = 0
    print("pyepics Motor: callbacks, a new current position")

    # A channel that is not connected would be missing.
    unconnected = [name for name, pv in motor._pvs.items() if not pv.connected]
    assert not unconnected, unconnected


def pyepics_scaler():
    from epics.devices import Scaler

    scaler = Scaler("X:scaler1", nchan=4)
    assert scaler.getNames() == ["clock", "diode", "other", ""], scaler.getNames()
    scaler.OneShotMode()
    scaler.EnableCalcs()
    scaler.setCalc(2, "A*2")
    scaler.Count(ctime=0.5, wait=True)
    counts = scaler.Read()
    assert scaler.get("CNT") == 0 and counts[0] > 0, counts
    near(scaler.get("T"), 0.5, 0.05)
    scaler.AutoCountMode()
    until("automatic counting", lambda: scaler.get("CONT", as_string=True) == "AutoCount")
    scaler.OneShotMode()
    print("pyepics Scaler: a count is complete when it has ended")


def pyepics_scan():
    from epics.devices import Scan
    from epics import PV

    scan = Scan("X:scan1")
    scan.reset()
    scan.put("npts", 5, wait=True)
    position = scan.add_positioner("X:m1.VAL", start=0, stop=1)
    trigger = scan.add_trigger("X:scaler1.CNT")
    detectors = [scan.add_detector("X:scaler1.S1"), scan.add_detector("X:m1.RBV")]
    assert (position, trigger, detectors) == (1, 1, [1, 2])
    PV("X:scaler1.TP").put(0.1, wait=True)
    until("all names are connected", lambda: scan.get("T1NV") == 0 and PV("X:scan1.D02NV").get() == 0)
    until("the step follows from the points", lambda: abs(scan.get("step") - 0.25) < 1e-9)
    scan.after_scan("START POS")
    scan.run(wait=True, timeout=PATIENCE)
    assert scan.get("execute") == 0 and scan.get("current_point") == 5
    positions = PV("X:scan1.D02DA").get(count=5)
    for found, expected in zip(positions, (0, 0.25, 0.5, 0.75, 1)):
        near(found, expected)
    assert all(count > 0 for count in PV("X:scan1.D01DA").get(count=5))
    near(PV("X:m1.RBV").get(), 0)
    print("pyepics Scan: positions, triggers, detectors, return to the start")

    scan.set_positioner(1, array=[0.3, 0.1, 0.2], mode="table")
    scan.put("npts", 3, wait=True)
    scan.run(wait=True, timeout=PATIENCE)
    for found, expected in zip(PV("X:scan1.D02DA").get(count=3), (0.3, 0.1, 0.2)):
        near(found, expected)
    print("pyepics Scan: a table of positions")

    scan.set_positioner(1, mode="linear", start=0, stop=5)
    scan.put("npts", 50, wait=True)
    done = threading.Event()
    scan.PV("EXSC").put(1, callback=lambda **_: done.set())
    until("the scan runs", lambda: scan.get("current_point") > 2)
    scan.put("pause", 1)
    until("the scan is paused", lambda: "paused" in scan.get("SMSG"))
    scan.put("pause", 0)
    scan.put("EXSC", 0)
    assert done.wait(PATIENCE) and scan.get("current_point") < 50
    print("pyepics Scan: pause and stop")


STEPS = {"ophyd": (ophyd_motor, ophyd_scaler), "pyepics": (pyepics_motor, pyepics_scaler, pyepics_scan)}

for step in STEPS[sys.argv[1]]:
    step()
print("all steps succeeded")
sys.stdout.flush()
