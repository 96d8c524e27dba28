// Texts for reasons, actions and verdicts.

export const REASONS = {
  retries_exhausted: ['Retries exhausted', 'All attempts of the retry array failed.'],
  invalid: ['Invalid', 'The target will never accept the message.'],
  late: ['Too late', 'The job was overdue by more than max_late at its first attempt.'],
  failed: ['Failed by its consumer', 'The consumer failed the last attempt.'],
  crashed: ['Crashed', 'The instance that held the job crashed in five attempts in a row.'],
  expired: ['Expired', 'The job was not delivered within its expiry.'],
  unknown: ['Unknown', 'A later version wrote a reason that this version does not know.'],
};

/** The text for the reason of a dead letter. */
export const reasonWord = (reason) => REASONS[reason]?.[0] ?? reason ?? 'Unknown';

const LATE = ['bad', 'Too late', 'The job was already published or finished.'];
const GONE = [
  'warn',
  'Not found',
  'There is no job with this id. It may have been published: completed jobs are soon forgotten.',
];
const DEAD = ['warn', 'Nothing changed', 'The job is dead. Requeue it instead.'];
const BUSY = [
  'warn',
  'Nothing changed',
  'An attempt is in flight, or the consumer has not answered yet. Try again later.',
];
const STALE = ['warn', 'Nothing changed', 'The job has a newer schedule or attempt.'];

const VERDICTS = {
  cancel: {
    cancelled: ['ok', 'Cancelled', 'The job was never published, and will not be.'],
    cancelled_after_attempt: [
      'ok',
      'Cancelled',
      'There will be no further attempt. An earlier attempt with an unknown outcome may still arrive.',
    ],
    in_flight: ['warn', 'Cancelled, but an attempt is in flight', 'There will be no further attempt. The one in flight may still arrive.'],
    fired: LATE,
    not_found: GONE,
  },
  reschedule: {
    rescheduled: ['ok', 'Rescheduled', 'The job has its new due time.'],
    in_flight: BUSY,
    dead: DEAD,
    fired: LATE,
    not_found: GONE,
  },
  fire: {
    firing: ['ok', 'Firing', 'The job is due now and goes out at once.'],
    in_flight: BUSY,
    dead: DEAD,
    fired: LATE,
    not_found: GONE,
  },
  finish: {
    finished: ['ok', 'Finished', 'The job is done and removed. There will be no further attempt.'],
    fired: LATE,
    stale: STALE,
    not_found: ['warn', 'Nothing to finish', 'There is no job with this id, or its schedule was never attempted.'],
  },
  fail: {
    failed: [
      'ok',
      'Attempt failed',
      'The next attempt follows the retry array. After its last wait the job is dead.',
    ],
    waiting: ['warn', 'Nothing changed', 'No attempt of the job is in flight.'],
    dead: DEAD,
    fired: LATE,
    stale: STALE,
    not_found: ['warn', 'Nothing to fail', 'There is no job with this id, or its schedule was never attempted.'],
  },
  requeue: {
    requeued: ['ok', 'Requeued', 'The job is due now. Its attempts count from 1 again.'],
    waiting: ['warn', 'Nothing changed', 'The job is not dead.'],
    fired: LATE,
    not_found: GONE,
  },
};

/** The level, word and sentence for a verdict. */
export function verdictWords(action, verdict) {
  return VERDICTS[action]?.[verdict] ?? ['warn', verdict, 'This dashboard does not know this verdict.'];
}

/** Other texts of confirmations for the jobs of queues, which nobody publishes. */
export const OF_QUEUES = {
  fire: { title: 'Make this job ready now?', text: 'Consumers can fetch the job without waiting for its due time.' },
  cancel: { text: 'No consumer will get the job, and the job cannot be restored.' },
};

/** The button of each action, and the texts of its confirmation. */
export const ACTIONS = {
  fire: { button: 'Fire now', title: 'Publish this job now?', text: 'The job is published without waiting for its due time.', confirm: 'Fire now' },
  reschedule: { button: 'Reschedule', title: 'Give this job a new due time', text: '', confirm: 'Reschedule' },
  finish: {
    button: 'Finish',
    title: 'Finish this job?',
    text: 'This acts for the consumer: the job is done and removed, and no attempt follows.',
    confirm: 'Finish',
  },
  fail: {
    button: 'Fail attempt',
    title: 'Fail this attempt?',
    text: 'This acts for the consumer: the next attempt follows the retry array. After its last wait the job is dead.',
    confirm: 'Fail attempt',
    danger: true,
  },
  requeue: {
    button: 'Requeue',
    title: 'Requeue this job?',
    text: 'The job becomes due now. Its attempts count from 1 again.',
    confirm: 'Requeue',
  },
  cancel: {
    button: 'Cancel job',
    title: 'Cancel this job?',
    text: 'The job will not be published, and cannot be restored.',
    confirm: 'Cancel job',
    danger: true,
  },
};
