// What states, reasons, actions and verdicts mean, in plain words.

export const STATES = {
  scheduled: ['info', 'Scheduled'],
  reserved: ['info', 'Reserved'],
  dead: ['bad', 'Dead'],
};

export const REASONS = {
  retries_exhausted: ['Retries exhausted', 'Every attempt of its retry array failed.'],
  invalid: ['Invalid', 'The target will never take it as it is.'],
  late: ['Too late', 'It was overdue by more than its limit at the first attempt.'],
  failed: ['Failed by its consumer', 'Its consumer said so at the last attempt.'],
  crashed: ['Crashed', 'Five attempts in a row ended with a crash of the process that made them.'],
};

/** The word for a reason of death. */
export const reasonWord = (reason) => REASONS[reason]?.[0] ?? reason ?? 'Unknown';

const LATE = ['bad', 'Too late', 'It was published, or finished, before this.'];
const GONE = [
  'warn',
  'Not here',
  'There is no such job. That is no proof that it was not published: what is over is soon forgotten.',
];
const DEAD = ['warn', 'Nothing changed', 'It is dead. Requeue it instead.'];
const BUSY = [
  'warn',
  'Nothing changed',
  'An attempt is out at this moment, or its consumer has yet to answer. Try again when that has ended.',
];
const STALE = ['warn', 'Nothing changed', 'The job has another schedule or attempt by now.'];

const VERDICTS = {
  cancel: {
    cancelled: ['ok', 'Cancelled', 'It was never published, and will not be.'],
    cancelled_after_attempt: [
      'ok',
      'Cancelled',
      'No new attempt begins. It was attempted before: an attempt whose outcome is unknown may still land.',
    ],
    in_flight: ['warn', 'Cancelled, but an attempt is out', 'No new attempt begins. The one that is on its way may still land.'],
    fired: LATE,
    not_found: GONE,
  },
  reschedule: {
    rescheduled: ['ok', 'Rescheduled', 'It has its new time.'],
    in_flight: BUSY,
    dead: DEAD,
    fired: LATE,
    not_found: GONE,
  },
  fire: {
    firing: ['ok', 'Firing', 'It is due now and will be published at once.'],
    in_flight: BUSY,
    dead: DEAD,
    fired: LATE,
    not_found: GONE,
  },
  finish: {
    finished: ['ok', 'Finished', 'It is done and gone; there will be no further attempt.'],
    fired: LATE,
    stale: STALE,
    not_found: ['warn', 'Nothing to finish', 'It is not here, or this schedule was never attempted.'],
  },
  fail: {
    failed: [
      'ok',
      'Attempt failed',
      'It is tried again after the next wait of its retry array, or is dead where that is used up.',
    ],
    waiting: ['warn', 'Nothing changed', 'No attempt of it is out.'],
    dead: DEAD,
    fired: LATE,
    stale: STALE,
    not_found: ['warn', 'Nothing to fail', 'It is not here, or this schedule was never attempted.'],
  },
  requeue: {
    requeued: ['ok', 'Requeued', 'It is due now, with its attempts counted from 1 again.'],
    waiting: ['warn', 'Nothing changed', 'It is not dead.'],
    fired: LATE,
    not_found: GONE,
  },
};

/** A verdict: its level, a word, a sentence. */
export function verdictWords(action, verdict) {
  return VERDICTS[action]?.[verdict] ?? ['warn', verdict, 'This dashboard does not know this answer.'];
}

/** What one is asked before an action. */
export const ACTIONS = {
  fire: { button: 'Fire now', title: 'Publish this job now?', text: 'It will not wait for its time.', confirm: 'Fire now' },
  reschedule: { button: 'Reschedule', title: 'Give this job another time', text: '', confirm: 'Reschedule' },
  finish: {
    button: 'Finish',
    title: 'Finish this job?',
    text: 'As if its consumer had said that it is done: the job goes, and no attempt follows.',
    confirm: 'Finish',
  },
  fail: {
    button: 'Fail attempt',
    title: 'Fail this attempt?',
    text: 'As if its consumer had said that it failed: the job is tried again after its next wait, or is dead.',
    confirm: 'Fail attempt',
    danger: true,
  },
  requeue: {
    button: 'Requeue',
    title: 'Requeue this job?',
    text: 'It is published now, with its attempts counted from 1 again.',
    confirm: 'Requeue',
  },
  cancel: {
    button: 'Cancel job',
    title: 'Cancel this job?',
    text: 'It will not be published, and cannot be brought back.',
    confirm: 'Cancel job',
    danger: true,
  },
};
