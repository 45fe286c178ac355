"""The beginning of each script that compares two IOCs."""

from p4p.client.thread import Context


def context(tcp, udp):
    return Context("pva", conf={
        "EPICS_PVA_ADDR_LIST": "127.0.0.1",
        "EPICS_PVA_AUTO_ADDR_LIST": "NO",
        "EPICS_PVA_SERVER_PORT": tcp,
        "EPICS_PVA_BROADCAST_PORT": udp,
    }, useenv=False, nt=False)
