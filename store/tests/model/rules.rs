//! The rules of the scripts of queues, each taken away, as `mutants` does.

use dwell_store::store::scripts::Name;

use crate::mutants::{Edit, Mutant};

const FINISHED: &str = "queue: popped and finished";
const LOST: &str = "queue: a pop whose answer is lost";
const BACK: &str = "queue: given back before it was handed over";
const AHEAD: &str = "queue: popped before its time";
const DEADLINE: &str = "queue: a pop after its deadline";
const DIES: &str = "queue: fails, dies, requeued";
const RELEASED: &str = "queue: released";
const TOUCHED: &str = "queue: touched";
const ENDED: &str = "queue: the end of a job in any state";
const ANEW: &str = "queue: cancelled and scheduled anew while held";
const ELSEWHERE: &str = "queue: replaced into another queue and to a broker";
const REPLACED: &str = "queue: replaced in the same queue";
const ENDS: &str = "queue: the lease ends during the word";
const BY_ID: &str = "queue: finish and fail by id";
const BY_ID_END: &str = "queue: fail by id to the end";
const BY_ID_AHEAD: &str = "queue: finish and fail by id before its time";
const FIRED: &str = "queue: fired, rescheduled";
const PURGED: &str = "queue: purged";
const LATE: &str = "queue: too late for its consumer";

const UNHELD: &str = "for set, number in pairs(unheld) do count_held(set, -number) end\n";

/// A mutant without this rule.
const fn without(
    rule: &'static str,
    scenes: &'static [&'static str],
    edits: &'static [Edit],
) -> Mutant {
    Mutant { rule, scenes, edits }
}

/// Every mutant of queues.
pub(crate) const RULES: &[Mutant] = &[
    // pop
    without(
        "a pop whose nonce is known hands out nothing more",
        &[FINISHED],
        &[Edit(
            &[Name::Pop],
            "local before = popped(pops, pops_old, nonce)\n",
            "local before = nil\n",
        )],
    ),
    without(
        "a pop is remembered",
        &[FINISHED],
        &[Edit(&[Name::Pop], "  remember_pop(pops, pops_old, nonce, table.concat(text))\n", "")],
    ),
    without(
        "a pop that comes again answers only what it still holds",
        &[REPLACED, ENDS],
        &[Edit(&[Name::Pop], "and pop_of(bytes) == nonce and bytes", "and bytes")],
    ),
    without(
        "and no lease that is over",
        &[FINISHED],
        &[Edit(&[Name::Pop], "tonumber(deadline) > NOW and ", "")],
    ),
    without(
        "nothing is handed out once the caller has given up",
        &[DEADLINE],
        &[Edit(&[Name::Pop], "if is_late(tonumber(ARGV[2])) then return late() end\n", "")],
    ),
    without(
        "nothing is handed out before its time",
        &[DIES],
        &[Edit(
            &[Name::Pop],
            "'-inf', int(until_ms), 'WITHSCORES', 'LIMIT', looked",
            "'-inf', '+inf', 'WITHSCORES', 'LIMIT', looked",
        )],
    ),
    without(
        "a retry is not handed out before its time",
        &[AHEAD],
        &[Edit(&[Name::Pop], "struct.unpack('>i8', state, 10) ~= due then", "false then")],
    ),
    without(
        "a lease begins no sooner than the job is due",
        &[AHEAD],
        &[Edit(&[Name::Pop], "early > 0 and int(due + span) or ", "")],
    ),
    without(
        "a hand-out counts as an attempt",
        &[DIES],
        &[Edit(&[Name::Pop], "0, attempt + 1)", "0, attempt)")],
    ),
    without(
        "so does the first",
        &[FINISHED],
        &[Edit(&[Name::Pop], "FLAG_HELD, 0, 1, 0)", "FLAG_HELD, 0, 0, 0)")],
    ),
    without(
        "the state names the pop",
        &[DIES],
        &[Edit(
            &[Name::Pop],
            ".. nonce .. sub(state, 26",
            ".. sub(state, 18, 25) .. sub(state, 26",
        )],
    ),
    without(
        "so does the first state",
        &[FINISHED],
        &[Edit(
            &[Name::Pop],
            ".. nonce .. sub(record, 7",
            ".. string.rep('\\0', 8) .. sub(record, 7",
        )],
    ),
    without(
        "a hand-out forgets how the last one ended",
        &[DIES, RELEASED],
        &[Edit(&[Name::Pop], "if has(marks, mark) then marks = marks - mark end", "")],
    ),
    without(
        "a pop takes its jobs out of due",
        &[FINISHED],
        &[Edit(&[Name::Pop], "many('ZREM', due_key, ids)\n", "")],
    ),
    without(
        "a pop counts what it holds",
        &[FINISHED],
        &[Edit(&[Name::Pop], "  count_held(set, count)\n", "")],
    ),
    without(
        "a consumer gets no job of the next one",
        &[FINISHED],
        &[Edit(&[Name::Pop], "own < own_most and ", "")],
    ),
    without(
        "a pop that comes again answers each job to its consumer",
        &[FINISHED],
        &[Edit(&[Name::Pop], "string.rep('\\0', consumer - told), ", "")],
    ),
    // unpop
    without(
        "a pop that was taken back before it arrived hands out nothing",
        &[LOST],
        &[Edit(
            &[Name::Unpop],
            "if not before then remember_pop(pops, pops_old, nonce, '') end\n",
            "",
        )],
    ),
    without(
        "only the hand-out of this pop is taken back",
        &[LOST, BACK],
        &[Edit(&[Name::Unpop], "and pop_of(bytes) == nonce and bytes", "and bytes")],
    ),
    without(
        "nothing is taken back that is being rescued",
        &[BACK, LOST],
        &[Edit(&[Name::Unpop], "if bytes and call('ZSCORE', HELD, id) then", "if bytes then")],
    ),
    without(
        "only the named jobs are taken back",
        &[BACK],
        &[Edit(&[Name::Unpop], "for i = 3, #ARGV do ids[i - 2] = ARGV[i] end\n", "")],
    ),
    without(
        "what was taken back is first in order again",
        &[BACK],
        &[Edit(&[Name::Unpop], "int(math.min(NOW, state.due))", "int(NOW)")],
    ),
    without(
        "nothing is taken back to before its time",
        &[AHEAD],
        &[Edit(&[Name::Unpop], "is_early and int(state.due) or ", "")],
    ),
    without(
        "what reached nobody is not counted",
        &[AHEAD],
        &[Edit(
            &[Name::Unpop],
            "state.attempt = state.attempt - 1",
            "state.attempt = state.attempt",
        )],
    ),
    without(
        "only what is known to have reached nobody is not counted",
        &[AHEAD],
        &[Edit(&[Name::Unpop], "if is_early and ARGV[2] == '1' then", "if is_early then")],
    ),
    without(
        "what was taken back is held by nobody",
        &[BACK],
        &[Edit(&[Name::Unpop], "state.flags, state.pop = 0, NO_POP", "state.pop = NO_POP")],
    ),
    without("and leaves held", &[BACK], &[Edit(&[Name::Unpop], "many('ZREM', HELD, left)\n", "")]),
    without(
        "and is not counted",
        &[BACK],
        &[Edit(&[Name::Unpop], "count_held(set, -#left)\n", "")],
    ),
    // acknowledge
    without(
        "a word is on the hand-out whose nonce it names",
        &[ENDS, REPLACED],
        &[Edit(&[Name::Acknowledge], "pop_of(bytes) == nonce and DUE[set]", "DUE[set]")],
    ),
    without(
        "no word on a lease that is over",
        &[ENDS],
        &[Edit(&[Name::Acknowledge], "and tonumber(deadline) > NOW then", "then")],
    ),
    without(
        "a fail answers alike only after a fail",
        &[ENDS],
        &[Edit(
            &[Name::Acknowledge],
            "if word == 'fail' and has(state.marks, FAILED) then",
            "if word == 'fail' then",
        )],
    ),
    without(
        "a release answers alike only after a release",
        &[RELEASED],
        &[Edit(
            &[Name::Acknowledge],
            "elseif word == 'release' and has(state.marks, RELEASED) then",
            "elseif word == 'release' then",
        )],
    ),
    without(
        "a fail is marked",
        &[DIES],
        &[Edit(&[Name::Acknowledge], "why, state.marks + FAILED", "why, state.marks")],
    ),
    without(
        "a release is marked",
        &[RELEASED],
        &[Edit(&[Name::Acknowledge], "        state.marks = state.marks + RELEASED\n", "")],
    ),
    without(
        "a fail waits",
        &[DIES],
        &[Edit(&[Name::Acknowledge], "'failed', time_of(wait)", "'failed', NOW")],
    ),
    without(
        "a release waits",
        &[RELEASED],
        &[Edit(&[Name::Acknowledge], "'released', time_of(more)", "'released', NOW")],
    ),
    without(
        "a fail is a step",
        &[DIES],
        &[Edit(&[Name::Acknowledge], "math.min(state.step + 1, 65535)", "state.step")],
    ),
    without(
        "a release is none",
        &[RELEASED],
        &[Edit(
            &[Name::Acknowledge],
            "state.marks + RELEASED\n",
            "state.marks + RELEASED\n        state.step = state.step + 1\n",
        )],
    ),
    without(
        "a dead job is with those of its queue",
        &[DIES],
        &[Edit(
            &[Name::Acknowledge],
            "put(deads, dead_of(set), NOW, id)",
            "put(deads, DEAD, NOW, id)",
        )],
    ),
    without(
        "a touch prolongs the lease",
        &[TOUCHED],
        &[Edit(&[Name::Acknowledge], "      push(held, int(ms), id)\n", "")],
    ),
    without(
        "what is ended leaves held",
        &[FINISHED],
        &[Edit(&[Name::Acknowledge], "many('ZREM', HELD, leave)\n", "")],
    ),
    without("and is not counted any more", &[FINISHED], &[Edit(&[Name::Acknowledge], UNHELD, "")]),
    without(
        "a finish forgets the state",
        &[FINISHED],
        &[Edit(&[Name::Acknowledge], "many('HDEL', STATE, finished)\n", "")],
    ),
    without(
        "a finish is remembered",
        &[FINISHED],
        &[Edit(&[Name::Acknowledge], "remember_completed(over, completed)\n", "")],
    ),
    without(
        "a drop is no finish",
        &[LATE],
        &[Edit(
            &[Name::Acknowledge],
            "return outcome == 'f' or outcome == 'n'",
            "return outcome == 'f' or outcome == 'n' or outcome == 'd'",
        )],
    ),
    without(
        "a word is stale where another job has the id",
        &[ANEW],
        &[Edit(
            &[Name::Acknowledge],
            "if not bytes and call('HEXISTS', JOBS, id) == 0 then",
            "if not bytes then",
        )],
    ),
    without(
        "a lease tells nothing of the jobs of other queues",
        &[ELSEWHERE],
        &[Edit(
            &[Name::Acknowledge],
            "return record and is_known(record) and set_of(record) == set",
            "return true",
        )],
    ),
    // Actions by id.
    without(
        "cancel and finish by id count what is held",
        &[ANEW, BY_ID],
        &[Edit(
            &[Name::Cancel, Name::Finish],
            "call('HDEL', STATE, id)\n  call('ZREM', HELD, id)\n  if is_held then count_unheld(record) end\n",
            "call('HDEL', STATE, id)\n  call('ZREM', HELD, id)\n",
        )],
    ),
    without(
        "so does fail by id, into due",
        &[BY_ID],
        &[Edit(
            &[Name::Fail],
            "write_state(state))\n  call('ZREM', HELD, id)\n  if is_held then count_unheld(record) end\n",
            "write_state(state))\n  call('ZREM', HELD, id)\n",
        )],
    ),
    without(
        "and into dead",
        &[BY_ID_END],
        &[Edit(
            &[Name::Fail],
            "call('ZADD', dead_key, int(NOW), id)\n  if is_held then count_unheld(record) end\n",
            "call('ZADD', dead_key, int(NOW), id)\n",
        )],
    ),
    without(
        "fail by id buries a job of a queue at the end",
        &[BY_ID_END],
        &[Edit(
            &[Name::Fail],
            "if state.reason ~= 0 and is_of_queue(record) then",
            "if false then",
        )],
    ),
    without(
        "only what was never handed out is cancelled for sure",
        &[BACK],
        &[Edit(
            &[Name::Cancel],
            "elseif waits and state.attempt == 0 and not dying then",
            "elseif waits and not dying then",
        )],
    ),
    without(
        "the cancel of a job that is handed out later is not definite",
        &[AHEAD],
        &[Edit(
            &[Name::Cancel],
            "(state.flags ~= FLAG_HELD or is_held_early(state_bytes))",
            "state.flags ~= FLAG_HELD",
        )],
    ),
    without(
        "nobody finishes a job by id that is handed out later",
        &[BY_ID_AHEAD],
        &[Edit(
            &[Name::Finish],
            "if state.attempt == 0 or is_held_early(state_bytes) then",
            "if state.attempt == 0 then",
        )],
    ),
    without(
        "nor fails it",
        &[BY_ID_AHEAD],
        &[Edit(
            &[Name::Fail],
            "if state.attempt == 0 or is_held_early(state_bytes) then",
            "if state.attempt == 0 then",
        )],
    ),
    without(
        "a fail is not repeated on another schedule",
        &[FIRED],
        &[Edit(
            &[Name::Reschedule],
            "state.crashes, state.pop = due, ARGV[5], 0, 0, NO_POP",
            "state.crashes = due, ARGV[5], 0, 0",
        )],
    ),
    without(
        "the end of a job does not end the next one",
        &[ENDED],
        &[Edit(&[Name::End], "generation_of(record) == ARGV[at + 3] and ", "")],
    ),
    // schedule
    without("replace counts what is held", &[REPLACED], &[Edit(&[Name::Schedule], UNHELD, "")]),
    without(
        "replace takes the job out of held",
        &[REPLACED],
        &[Edit(&[Name::Schedule], "      push(leave_held, id)\n", "")],
    ),
    without(
        "replace takes the job out of its queue",
        &[ELSEWHERE],
        &[Edit(&[Name::Schedule], "          push(leave_due[key], id)\n", "")],
    ),
    without(
        "replace forgets the hand-outs of the job before",
        &[REPLACED],
        &[Edit(&[Name::Schedule], "      if state then push(forget, id) end\n", "")],
    ),
    // purge
    without(
        "a purged job is remembered by its message",
        &[PURGED],
        &[Edit(&[Name::Purge], "remember_applied(applied)\n", "")],
    ),
    without(
        "a purge forgets states",
        &[PURGED],
        &[Edit(&[Name::Purge], "many('HDEL', STATE, ids)\n", "")],
    ),
    without(
        "a purge of the scheduled leaves the ready",
        &[PURGED],
        &[Edit(&[Name::Purge], "state == 'scheduled' and '(' .. int(NOW) or '-inf'", "'-inf'")],
    ),
    without(
        "and of the ready the scheduled",
        &[PURGED],
        &[Edit(
            &[Name::Purge],
            "state == 'ready' and int(math.min(NOW, tonumber(ARGV[4] or nil) or NOW)) or '+inf'",
            "'+inf'",
        )],
    ),
    without(
        "a purge of the dead leaves the others",
        &[PURGED],
        &[Edit(&[Name::Purge], "state == 'dead' and KEYS[FIRST_DUE + 1] or", "")],
    ),
    // rescue
    without("a rescue counts what is held", &[ENDS], &[Edit(&[Name::Rescue], UNHELD, "")]),
    without(
        "a rescue takes what is held no longer",
        &[ENDS, TOUCHED],
        &[Edit(
            &[Name::Rescue],
            "call('ZRANGEBYSCORE', HELD, '-inf', NOW, 'LIMIT', 0, most + 1)",
            "call('ZRANGEBYSCORE', HELD, '-inf', '+inf', 'LIMIT', 0, most + 1)",
        )],
    ),
    without(
        "a rescue buries among the dead of the queue",
        &[ENDS],
        &[Edit(&[Name::Bury], "settle_to(KEYS[FIRST_DUE + 1] or DEAD)", "settle_to(DEAD)")],
    ),
    // The queues that a bucket knows
    without(
        "a schedule makes its queue known",
        &[ELSEWHERE],
        &[Edit(&[Name::Schedule], "call('HSETNX', QUEUES, broker, '0')", "")],
    ),
    without(
        "a word by id too",
        &[BY_ID_END, BY_ID],
        &[Edit(
            &[Name::Fail],
            "  enter(set_of(record))\n  call('ZADD', due_key,",
            "  call('ZADD', due_key,",
        )],
    ),
    without(
        "and one that buries",
        &[BY_ID_END, BY_ID],
        &[Edit(
            &[Name::Fail],
            "  enter(set_of(record))\n  call('ZADD', dead_key,",
            "  call('ZADD', dead_key,",
        )],
    ),
    without(
        "and a settled lease",
        &[ENDS],
        &[Edit(
            &[Name::Retry, Name::Release],
            "    enter(string.match(key, '}:%l+:(.*)$') or '')\n",
            "",
        )],
    ),
    without(
        "a queue with a dead job stays known",
        &[DIES],
        &[Edit(&[Name::Forget], " and call('ZCARD', dead_of(set)) == 0", "")],
    ),
    without(
        "and one with a waiting job",
        &[FINISHED],
        &[Edit(&[Name::Forget], " and call('ZCARD', key) == 0", "")],
    ),
    without(
        "and one with a held job",
        &[FINISHED],
        &[Edit(&[Name::Forget], "call('HGET', QUEUES, set) == '0' and ", "")],
    ),
    // fsck
    without(
        "a job that is taken in as held is counted",
        &[ENDS],
        &[Edit(
            &[Name::FsckAdopt],
            "if key == HELD and is_known(record) and is_of_queue(record) then count_held(set_of(record), 1) end\n",
            "",
        )],
    ),
    without(
        "so is one of a lease that has lost its bits",
        &[ENDS],
        &[Edit(
            &[Name::FsckLeases],
            "      for set, number in pairs(counts) do count_held(set, number) end\n",
            "",
        )],
    ),
];
