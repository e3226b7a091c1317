"""``python -m renaissance``."""

import sys

from renaissance.cli import main

sys.exit(main())
