"""Runs QSRV2 with a database and a file of groups. Its own program loads records only."""

import code
import os
import sys

os.environ.setdefault("PVXS_QSRV_ENABLE", "YES")

import pvxslibs.path
from epicscorelibs import ioc

start = ioc.iocInit


def init():
    if ioc.iocshCmd(b'dbLoadGroup groups.json "P=T:"'):
        raise RuntimeError("the groups are not loaded")
    return start()


ioc.iocInit = init
ioc.start_ioc(
    dbs=[("groups.db", "")],
    extra_dbd_load=(("pvxsIoc.dbd", pvxslibs.path.dbd_path),),
    extra_dso_load=("pvxslibs.lib.pvxsIoc",),
)
code.interact(local={"ioc": ioc.ioc, "exit": sys.exit})
