//! The rules of the scripts, each taken away by a change of the Lua text: an exploration must then
//! find a counterexample.

use dwell_store::store::scripts::Name;

/// A rule, and the change that takes it away.
pub(crate) struct Mutant {
    /// The rule, in words.
    pub(crate) rule: &'static str,
    /// The scenes that show the need of the rule, in this order.
    pub(crate) scenes: &'static [&'static str],
    pub(crate) edits: &'static [Edit],
}

/// A replacement of a text that stands once in each of these scripts.
pub(crate) struct Edit(
    pub(crate) &'static [Name],
    pub(crate) &'static str,
    pub(crate) &'static str,
);

const SETTLES: &[Name] = &[Name::Hold, Name::Release, Name::Retry, Name::Bury];
const PIECES: &str = "settles in pieces, repeated, cancel and schedule anew";
const TWICE: &str = "replaced twice while out";
const ANEW: &str = "replace, cancel, schedule of one id";
const RESCUE: &str = "rescue of a lease in pieces, and repeated";
const HALF: &str = "the owner of a half settled lease dies";
const FAILS: &str = "retry, bury, release";
const HELD: &str = "held for its consumer: finish, fail";
const HELD_ANEW: &str = "held, finished, scheduled anew";
const HELD_DIES: &str = "held, its owner dies, failed";
const LOST: &str = "a claim whose answer is lost";
const EARLY: &str = "claimed early and given back";
const FAILOVER: &str = "one failover, cancel and schedule anew";
const SWEEP: &str = "one failover, a sweep, a reschedule and a cancel";
const AGAIN: &str = "a cancel that comes again";
const DEBOUNCED: &str = "debounced: out, given back, failed";
const DEBOUNCED_ANEW: &str = "debounced: rescheduled, fired";
const AGAIN_SCHEDULE: &str = "a schedule that comes again";

impl Mutant {
    /// The text of a script without the rule.
    pub(crate) fn source(&self, name: Name) -> String {
        let mut source = name.source(1);
        for Edit(_, old, new) in self.edits.iter().filter(|edit| edit.0.contains(&name)) {
            let count = source.matches(old).count();
            assert_eq!(
                count,
                1,
                "`{}`: {} must have this text once:\n{old}",
                self.rule,
                name.as_str()
            );
            source = source.replace(old, new);
        }
        source
    }
}

/// Every mutant.
pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        rule: "a claim whose nonce holds a lease answers that lease",
        scenes: &[EARLY, PIECES],
        edits: &[Edit(
            &[Name::Claim],
            "if before then return answer_again(nonce, before) end\n",
            "",
        )],
    },
    Mutant {
        rule: "a rescue whose nonce holds a lease answers that lease",
        scenes: &[RESCUE],
        edits: &[Edit(
            &[Name::Rescue],
            "if before then return answer_again(nonce, before) end\n",
            "",
        )],
    },
    Mutant {
        rule: "a claim that comes again answers no job that has left its lease",
        scenes: &[PIECES],
        edits: &[Edit(
            &[Name::Claim],
            "local record = is_out(claim, position) and call(",
            "local record = call(",
        )],
    },
    Mutant {
        rule: "a lease is named by its nonce and the time of its first write",
        scenes: &[TWICE],
        edits: &[Edit(
            &[Name::Complete],
            "sub(settled, 1, 8) == ARGV[at + 1] and read_claim(nonce, settled)",
            "read_claim(nonce, settled)",
        )],
    },
    Mutant {
        rule: "the same for the settles that send a job back",
        scenes: &[EARLY, FAILS],
        edits: &[Edit(
            SETTLES,
            "sub(settled, 1, 8) == ARGV[at + 1] and read_claim(nonce, settled)",
            "read_claim(nonce, settled)",
        )],
    },
    Mutant {
        rule: "a complete of a job that has left its lease changes nothing",
        scenes: &[PIECES],
        edits: &[Edit(
            &[Name::Complete],
            "if claim and is_out(claim, position) then\n      take_out(claim, position)\n",
            "if claim then\n      if is_out(claim, position) then take_out(claim, position) end\n",
        )],
    },
    Mutant {
        rule: "a settle of a job that has left its lease changes nothing",
        scenes: &[EARLY],
        edits: &[Edit(
            SETTLES,
            "if claim and is_out(claim, position) then\n        take_out(claim, position)\n",
            "if claim then\n        if is_out(claim, position) then take_out(claim, position) end\n",
        )],
    },
    Mutant {
        rule: "a complete without its lease changes nothing",
        scenes: &[TWICE],
        edits: &[Edit(
            &[Name::Complete],
            "if claim and is_out(claim, position) then\n      take_out(claim, position)\n",
            "if not claim or is_out(claim, position) then\n      if claim then take_out(claim, position) end\n",
        )],
    },
    Mutant {
        rule: "a settle without its lease changes nothing",
        scenes: &[EARLY],
        edits: &[Edit(
            SETTLES,
            "if claim and is_out(claim, position) then\n        take_out(claim, position)\n",
            "if not claim or is_out(claim, position) then\n        if claim then take_out(claim, position) end\n",
        )],
    },
    Mutant {
        rule: "replace takes the job out of its lease",
        scenes: &[TWICE],
        edits: &[Edit(&[Name::Schedule], "      take_all_out(claimed)\n", "")],
    },
    Mutant {
        rule: "cancel takes the job out of its lease",
        scenes: &[ANEW],
        edits: &[Edit(
            &[Name::Cancel],
            "call('HDEL', STATE, id)\n  call('ZREM', HELD, id)\n  if is_held then count_unheld(record) end\n  take_all_out(claimed)\n",
            "call('HDEL', STATE, id)\n  call('ZREM', HELD, id)\n  if is_held then count_unheld(record) end\n",
        )],
    },
    Mutant {
        rule: "finish takes the job out of its lease",
        scenes: &[HELD],
        edits: &[Edit(
            &[Name::Finish],
            "call('HDEL', STATE, id)\n  call('ZREM', HELD, id)\n  if is_held then count_unheld(record) end\n  take_all_out(claimed)\n",
            "call('HDEL', STATE, id)\n  call('ZREM', HELD, id)\n  if is_held then count_unheld(record) end\n",
        )],
    },
    Mutant {
        rule: "fail takes the job out of its lease",
        scenes: &[HELD],
        edits: &[Edit(
            &[Name::Fail],
            "write_state(state))\n  call('ZREM', HELD, id)\n  if is_held then count_unheld(record) end\n  take_all_out(claimed)\n",
            "write_state(state))\n  call('ZREM', HELD, id)\n  if is_held then count_unheld(record) end\n",
        )],
    },
    Mutant {
        rule: "replace takes the job out of every lease that has it, not of the first that names it",
        scenes: &[TWICE],
        edits: &[Edit(
            &[Name::Schedule],
            "    if start then\n",
            "    if start and not found.stop then\n      found.stop = true\n",
        )],
    },
    Mutant {
        rule: "so does cancel",
        scenes: &[ANEW, TWICE],
        edits: &[Edit(
            &[Name::Cancel],
            "    if start then\n",
            "    if start and not found.stop then\n      found.stop = true\n",
        )],
    },
    Mutant {
        rule: "replace removes a lease that it leaves empty",
        scenes: &[TWICE],
        edits: &[Edit(&[Name::Schedule], "if is_over then push(over,", "if false then push(over,")],
    },
    Mutant {
        rule: "cancel removes a lease that it leaves empty",
        scenes: &[ANEW],
        edits: &[Edit(&[Name::Cancel], "if is_over then push(over,", "if false then push(over,")],
    },
    Mutant {
        rule: "rescue takes over only what has not left",
        scenes: &[RESCUE, HALF],
        edits: &[Edit(
            &[Name::Rescue],
            "if more == 0 and is_out(old[i], position) and take_over(id, due) then",
            "if more == 0 and take_over(id, due) and is_out(old[i], position) then",
        )],
    },
    Mutant {
        rule: "rescue takes what it takes over out of the old lease",
        scenes: &[RESCUE],
        edits: &[Edit(&[Name::Rescue], "close_claims(old)\n", "")],
    },
    Mutant {
        rule: "rescue takes held jobs out of held",
        scenes: &[HELD],
        edits: &[Edit(&[Name::Rescue], "many('ZREM', HELD, held_over)\n", "")],
    },
    Mutant {
        rule: "reclaim gives back only what has not left",
        scenes: &[LOST],
        edits: &[Edit(
            &[Name::Reclaim],
            "    take_out(claim, position)\n    push(back, due, id)\n",
            "    take_out(claim, position)\n  end\n  do\n    push(back, due, id)\n",
        )],
    },
    Mutant {
        rule: "the attempt of a job in a lease counts",
        scenes: &[HELD],
        edits: &[Edit(
            &[Name::Finish, Name::Fail],
            "if #claimed > 0 then count_attempt(state) end",
            "",
        )],
    },
    Mutant {
        rule: "the attempt of a held job is counted once",
        scenes: &[HELD_DIES, HELD],
        edits: &[Edit(
            &[Name::Fail],
            "if state.flags == 0 and state.reason == 0 then",
            "if state.reason == 0 then",
        )],
    },
    Mutant {
        rule: "a job that was due before a change of master may have been published",
        scenes: &[FAILOVER],
        edits: &[Edit(
            &[Name::Cancel],
            "local function is_doubtful()\n",
            "local function is_doubtful()\n  if true then return false end\n",
        )],
    },
    Mutant {
        rule: "a reschedule keeps that doubt",
        scenes: &[SWEEP],
        edits: &[Edit(
            &[Name::Reschedule],
            "if state.attempt == 0 and not has(state.marks, DOUBT) and is_doubtful() then",
            "if false then",
        )],
    },
    Mutant {
        rule: "fsck looks into the leases",
        scenes: &[PIECES],
        edits: &[Edit(
            &[Name::FsckJobs],
            "for _, one in ipairs(find_claimed(id)) do",
            "for _, one in ipairs({}) do",
        )],
    },
    Mutant {
        rule: "claim takes its jobs out of due",
        scenes: &[PIECES],
        edits: &[Edit(
            &[Name::Claim],
            "if count > recent then call('ZREMRANGEBYRANK',",
            "if false then call('ZREMRANGEBYRANK',",
        )],
    },
    Mutant {
        rule: "the cancel of a claimed job is not definite",
        scenes: &[PIECES],
        edits: &[Edit(&[Name::Cancel], "verdict = 'in_flight'\n", "verdict = 'cancelled'\n")],
    },
    Mutant {
        rule: "a reschedule of a claimed job changes nothing",
        scenes: &[EARLY],
        edits: &[Edit(
            &[Name::Reschedule],
            "if runs then return unchanged('in_flight', state.due) end\n",
            "",
        )],
    },
    Mutant {
        rule: "an action is remembered by its message",
        scenes: &[AGAIN],
        edits: &[Edit(&[Name::Cancel], "if has(bits, 1) then\n", "if false then\n")],
    },
    Mutant {
        rule: "a replaced schedule is remembered by its message",
        scenes: &[AGAIN_SCHEDULE],
        edits: &[Edit(&[Name::Schedule], "      push_schedule(newly_applied, was, was_due)\n", "")],
    },
    Mutant {
        rule: "a cancelled schedule is remembered by its message",
        scenes: &[AGAIN],
        edits: &[Edit(&[Name::Cancel], "push_schedule({}, record, state.due)", "{}")],
    },
    Mutant {
        rule: "a completed schedule is remembered by its message",
        scenes: &[AGAIN_SCHEDULE],
        edits: &[Edit(&[Name::Complete], "remember_completed(over, COMPLETED_COUNT)\n", "")],
    },
    Mutant {
        rule: "replace forgets the state of the job before",
        scenes: &[FAILS],
        edits: &[Edit(&[Name::Schedule], "      if state then push(forget, id) end\n", "")],
    },
    Mutant {
        rule: "replace takes the job out of held",
        scenes: &[HELD_ANEW],
        edits: &[Edit(&[Name::Schedule], "      push(leave_held, id)\n", "")],
    },
    Mutant {
        rule: "complete forgets the state",
        scenes: &[HALF],
        edits: &[Edit(
            &[Name::Complete],
            "      if is_stated == 1 then push(stated, id) end\n",
            "",
        )],
    },
    Mutant {
        rule: "a job that was given back is not due before its time",
        scenes: &[EARLY],
        edits: &[Edit(
            &[Name::Release],
            "if sub(time, 1, 1) == '=' then return tonumber(sub(time, 2)) end\n",
            "if true then return NOW end\n",
        )],
    },
    Mutant {
        rule: "a job that was refused is not due before its time",
        scenes: &[EARLY],
        edits: &[Edit(
            &[Name::Release],
            "return math.max(tonumber(at), after(tonumber(span)))",
            "return after(tonumber(span))",
        )],
    },
    Mutant {
        rule: "a fail applies to the attempt that it names",
        scenes: &[HELD_DIES],
        edits: &[Edit(
            &[Name::Fail],
            "if ARGV[5] ~= '' and tonumber(ARGV[5]) ~= state.attempt then return unchanged('stale', state.due, names_attempt) end\n",
            "",
        )],
    },
    Mutant {
        rule: "a schedule of an id that is over forgets its outcome",
        scenes: &[TWICE],
        edits: &[Edit(&[Name::Schedule], "    if over then push(outdated, id) end\n", "")],
    },
    Mutant {
        rule: "and remembers the message of that outcome",
        scenes: &[AGAIN_SCHEDULE],
        edits: &[Edit(
            &[Name::Schedule],
            "    if completed[i] then push_over(newly_applied, completed[i]) end\n",
            "",
        )],
    },
    Mutant {
        rule: "a retry waits",
        scenes: &[FAILS],
        edits: &[Edit(
            &[Name::Retry],
            "  return after(tonumber(sub(time, 2)))\n",
            "  return NOW\n",
        )],
    },
    Mutant {
        rule: "a failed attempt waits",
        scenes: &[HELD_DIES, HELD],
        edits: &[Edit(&[Name::Fail], "at = time_of(ARGV[8])", "at = NOW")],
    },
    Mutant {
        rule: "a job that debounces is due within the longest wait",
        scenes: &[DEBOUNCED],
        edits: &[Edit(&[Name::Schedule], "    due = math.min(due, first + max_wait)\n", "")],
    },
    Mutant {
        rule: "a job that debounces has its first request in its record",
        scenes: &[DEBOUNCED],
        edits: &[Edit(
            &[Name::Schedule],
            "    if max_wait then record = with_first(record, first) end\n",
            "",
        )],
    },
    Mutant {
        rule: "a request that debounces takes the first request over",
        scenes: &[DEBOUNCED],
        edits: &[Edit(&[Name::Schedule], "math.min(first or now, now)", "now")],
    },
    Mutant {
        rule: "an attempt ends a burst",
        scenes: &[DEBOUNCED],
        edits: &[Edit(&[Name::Schedule], "(state.attempt > 0 or ", "(")],
    },
    Mutant {
        rule: "so does an attempt that is out",
        scenes: &[DEBOUNCED],
        edits: &[Edit(
            &[Name::Schedule],
            "if max_wait and was_due and #claimed == 0 then",
            "if max_wait and was_due then",
        )],
    },
    Mutant {
        rule: "so does a reschedule",
        scenes: &[DEBOUNCED_ANEW],
        edits: &[Edit(&[Name::Schedule], " or state.generation ~= generation_of(record))", ")")],
    },
];
