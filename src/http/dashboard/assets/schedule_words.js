// Texts for recurring schedules: their rules, actions and verdicts.

/** What becomes of missed occurrences. */
export const CATCH_UP = {
  one: 'The latest one is made',
  none: 'None is made',
  all: 'The latest 100 are made',
};

/** What becomes of an occurrence while the one before is alive. */
export const OVERLAP = {
  allow: 'The next one is made all the same',
  skip: 'The next one is not made, and counts as missed',
};

/** What becomes of a job that is too late. */
export const LATE = {
  fire: 'It is made all the same',
  drop: 'It is dropped',
  dead: 'It becomes a dead letter',
};

const GONE = ['warn', 'Not found', 'There is no schedule with this id. Schedules that have ended are not kept.'];

const VERDICTS = {
  cancel: {
    cancelled: ['ok', 'Ended', 'There will be no further occurrence. Those that retry go on.'],
    cancelled_after_attempt: ['ok', 'Ended', 'There will be no further occurrence. Those that retry go on.'],
    in_flight: ['warn', 'Ended, but an attempt is in flight', 'There will be no further occurrence. The newest one goes on.'],
    not_found: GONE,
  },
  fire: {
    firing: ['ok', 'Firing', 'An occurrence was made and is due now. The next time stays.'],
    not_found: GONE,
  },
};

/** The level, word and sentence for a verdict on a schedule. */
export function scheduleVerdict(action, verdict) {
  return VERDICTS[action]?.[verdict] ?? ['warn', verdict, 'This dashboard does not know this verdict.'];
}

/** The button of each action, the texts of its confirmation, and what is said once it is done. */
export const SCHEDULE_ACTIONS = {
  fire: {
    button: 'Fire now',
    title: 'Make an occurrence now?',
    text: 'One more occurrence is made and is due at once. The next time stays. It counts towards the most occurrences.',
    confirm: 'Fire now',
  },
  pause: {
    button: 'Pause',
    title: 'Pause this schedule?',
    text: 'No occurrence is made until the schedule is resumed. What falls due meanwhile is neither missed nor caught up.',
    confirm: 'Pause',
    done: ['warn', 'Paused', 'No occurrence is made until the schedule is resumed.'],
  },
  resume: {
    button: 'Resume',
    title: 'Resume this schedule?',
    text: 'Occurrences are made again, from the next time on.',
    confirm: 'Resume',
    done: ['ok', 'Resumed', 'Occurrences are made again.'],
  },
  cancel: {
    button: 'End schedule',
    title: 'End this schedule?',
    text: 'The schedule is removed and cannot be restored; one of the settings comes back with the next start. Its newest occurrence is cancelled too, if no attempt of it began.',
    confirm: 'End schedule',
    danger: true,
  },
};
