"""Never updates anything."""

import sys
import time

if len(sys.argv) > 1:
    while True:
        time.sleep(0.01)
