# run.py STORY ADDRESS ARGUMENT…: one story of the dashboard of a running sidecar, in headless Chromium. `tests/live/http/browser.rs` starts it.
# It exits 0 where all that the story expects came true. DWELL_CHROMIUM is the browser.
import sys

import access
import dead
import jobs
import pace
import queues
import schedules
import state

STORIES = {name: story for module in (access, dead, jobs, pace, queues, schedules, state) for name, story in vars(module).items() if getattr(story, "is_story", False)}

name, address, *arguments = sys.argv[1:]
STORIES[name](address, *arguments)
