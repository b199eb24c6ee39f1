"""What tests rely on, however they were started."""

import signal

if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, which processes of tests would inherit
