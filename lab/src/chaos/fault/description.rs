//! Each fault in words, as the documentation tells it.

use super::FaultKind;

/// What is done, what happens, what a person sees.
#[derive(Debug, Clone, Copy)]
pub struct Description {
    /// What is done.
    pub done: &'static str,
    /// What Dwell does about it.
    pub happens: &'static str,
    /// What a person sees of it: metrics, log lines, readiness.
    pub seen: &'static str,
}

const fn description(done: &'static str, happens: &'static str, seen: &'static str) -> Description {
    Description { done, happens, seen }
}

const REDIS_SEEN: &str =
    "`dwell_redis_errors_total` rises, `dwell_ingest_paused{reason=\"redis\"}` is 1 while requests wait; readiness stays";
const REDIS_AWAY: &str = "requests are held unacknowledged, nothing is claimed, attempts whose settle was lost are taken over at the end of their lease; all goes on by itself";
const BROKER_SEEN: &str =
    "`dwell_broker_connected` falls to 0, `dwell_publish_total{outcome=\"unknown\"}` counts what was out; readiness stays";
const BROKER_AWAY: &str = "its jobs are not claimed and burn no attempt; what was out is unknown and is published again on its schedule";
const REFUSED_SEEN: &str = "`dwell_target_paused` is 1, `dwell_publish_total{outcome=\"refused\"}` rises";

pub(super) fn of(kind: FaultKind) -> Description {
    match kind {
        FaultKind::DwellKill => description(
            "an instance is killed (SIGKILL) and started again",
            "the broker delivers its unacknowledged requests again; its claims are taken over at the end of their lease, without a step burned",
            "`dwell_possible_duplicates_total{cause=\"rescued\"}` on who takes over",
        ),
        FaultKind::DwellFreeze => description(
            "an instance is stopped (SIGSTOP) for longer than its lease, then goes on",
            "others take its claims over; awake, it publishes nothing whose lease is over, and its late settles change nothing",
            "`dwell_leases_lost_total` on the sleeper, `dwell_possible_duplicates_total{cause=\"rescued\"}` on the others",
        ),
        FaultKind::DwellTerm => description(
            "an instance is ended (SIGTERM) and started again",
            "it stops reading and claiming, waits for confirms, gives the rest back without burning an attempt, and exits 0",
            "its log says what was settled and given back",
        ),
        FaultKind::InstanceCutOff => description(
            "one of two instances loses its link to Redis for longer than `hold`: its connections are reset, or pass nothing",
            "after `hold` it gives its requests back to the broker and reads no more until Redis answers; the other instance stores them",
            "on this instance `dwell_ingest_paused{reason=\"redis\"}` is 1 and `dwell_redis_errors_total` rises",
        ),
        FaultKind::StartWithoutBroker => description(
            "an instance is ended (SIGTERM) and started again while one of its two brokers cannot be reached",
            "it serves the broker that is there, and the other one as soon as that is there; jobs for that one wait and burn no attempt",
            "`/readyz` and a WARN every ten seconds name the broker, `dwell_broker_connected` is 0",
        ),
        FaultKind::RedisKill => description("Redis is killed (SIGKILL) and started again on its append-only file", REDIS_AWAY, REDIS_SEEN),
        FaultKind::RedisFreeze => description("Redis is stopped (SIGSTOP) and goes on", REDIS_AWAY, REDIS_SEEN),
        FaultKind::RedisRestart => description("Redis is ended (SIGTERM) and started again", REDIS_AWAY, REDIS_SEEN),
        FaultKind::RedisFull => description(
            "`maxmemory` is set to what is used, with `noeviction`",
            "ingests pause; deliveries go on and free memory",
            "`dwell_ingest_paused{reason=\"redis_full\"}` is 1, `dwell_redis_errors_total{class=\"oom\"}` rises",
        ),
        FaultKind::RedisReadonly => description(
            "the master becomes a replica of nothing: it refuses writes (READONLY)",
            "links are opened anew until a master answers; nothing is claimed or acknowledged meanwhile",
            "`dwell_redis_errors_total{class=\"readonly\"}` rises",
        ),
        FaultKind::RedisNoReplicas => description(
            "`min-replicas-to-write` asks for more replicas than there are: writes are refused (NOREPLICAS)",
            "nothing is claimed or acknowledged until it is lifted",
            REDIS_SEEN,
        ),
        FaultKind::RedisBusy => {
            description("a script of somebody else runs for the whole time (BUSY), then is killed", REDIS_AWAY, REDIS_SEEN)
        }
        FaultKind::RedisScriptFlush => {
            description("the scripts are flushed, again and again", "each is loaded again with the next call", "nothing")
        }
        FaultKind::RedisClientKill => description("every connection is closed by the server, again and again", REDIS_AWAY, REDIS_SEEN),
        FaultKind::RedisFailover => description(
            "the replica is promoted, the old master is killed and comes back as its replica",
            "what `durability = \"replica\"` acknowledged is there; what was completed and not yet replicated is published again",
            "the log says that the master changed",
        ),
        FaultKind::LinkCutRedis => description("every connection to Redis is reset, and new ones too", REDIS_AWAY, REDIS_SEEN),
        FaultKind::LinkStallRedis => description("the link to Redis passes nothing, then everything that waited", REDIS_AWAY, REDIS_SEEN),
        FaultKind::LinkSlowRedis => {
            description("the link to Redis is slow: 100 ms each way", "jobs are late by the round trips", "`dwell_redis_seconds`")
        }
        FaultKind::LinkDropAnswersRedis => description(
            "Redis hears everything and its answers are lost",
            "calls are repeated; scripts that were applied answer the same again. A claim whose answer was lost is given back by its nonce",
            REDIS_SEEN,
        ),
        FaultKind::LinkHalfOpenRedis => description("Redis has forgotten the connections, and nobody says so", REDIS_AWAY, REDIS_SEEN),
        FaultKind::LinkCutBroker => description("every connection to the broker is reset, and new ones too", BROKER_AWAY, BROKER_SEEN),
        FaultKind::LinkStallBroker => {
            description("the link to the broker passes nothing, then everything that waited", BROKER_AWAY, BROKER_SEEN)
        }
        FaultKind::LinkSlowBroker => {
            description("the link to the broker is slow", "jobs are late by the round trips", "`dwell_confirm_seconds`")
        }
        FaultKind::LinkDropAnswersBroker => description(
            "the broker takes everything and its confirms are lost",
            "each attempt without a confirm has failed, though its copy landed: it is published again, with a higher attempt",
            "`dwell_possible_duplicates_total{cause=\"unknown_outcome\"}` counts them",
        ),
        FaultKind::LinkHalfOpenBroker => {
            description("the broker has forgotten the connections, and nobody says so", BROKER_AWAY, BROKER_SEEN)
        }
        FaultKind::BrokerKill => description("the broker is killed (SIGKILL) and started again", BROKER_AWAY, BROKER_SEEN),
        FaultKind::BrokerFreeze => description("the broker is stopped (SIGSTOP) and goes on", BROKER_AWAY, BROKER_SEEN),
        FaultKind::BrokerRestart => description("the broker is ended (SIGTERM) and started again", BROKER_AWAY, BROKER_SEEN),
        FaultKind::TargetFull => description(
            "a target is full: a queue that rejects, a stream that discards what is new",
            "its jobs wait, each try later than the one before up to 4 s, and burn no attempt; others are served",
            REFUSED_SEEN,
        ),
        FaultKind::TargetDeleted => description(
            "a target is deleted and made again: a queue, or the subject of a stream",
            "each attempt has failed, and the next comes on the job's schedule; others are served",
            "`dwell_publish_total{outcome=\"unroutable\"}` rises",
        ),
        FaultKind::TargetSilent => description(
            "a target never answers, and 1500 jobs for it are due at once: a subject with a plain subscriber and no stream, a topic whose partition has \
             no leader, a classic queue whose process stands still (the nearest that one RabbitMQ node can show)",
            "it takes no more than its share of the window; its attempts end unknown, and it is paused and probed; others are served in time",
            "`dwell_target_paused` is 1, `dwell_publish_total{outcome=\"unknown\"}` rises",
        ),
        FaultKind::ConsumerDeleted => description(
            "the durable consumer of the ingest is deleted",
            "it is made again; what comes a second time changes nothing",
            "the log says that the source was lost",
        ),
        FaultKind::PermissionsWithdrawn => description(
            "the user of the instances loses its rights on the broker, and has them again",
            "each attempt has failed, and the next comes on the job's schedule; requests stay on the broker",
            "`dwell_publish_total{outcome=\"unroutable\"}` rises, the log names the right that lacks",
        ),
        FaultKind::ConnectionBlocked => description(
            "RabbitMQ's memory alarm goes off: it reads from no publisher (connection.blocked)",
            "what was out is unknown; acknowledgements of requests go on, on another connection",
            REFUSED_SEEN,
        ),
        FaultKind::ClockJump => description(
            "the wall clock of the instances jumps by an hour, forward or back, and back again",
            "nothing: it decides nothing",
            "times in logs, and `created_ms`",
        ),
        FaultKind::RedisClockJump => description(
            "the wall clock of Redis jumps by five seconds, forward or back, and back again",
            "it is the clock by which jobs are due: they come early, or late, by that",
            "nothing, or `dwell_lateness_seconds`",
        ),
        FaultKind::DiskFull => description(
            "the append-only file cannot be written (MISCONF)",
            "nothing is claimed or acknowledged until the disk has room",
            REDIS_SEEN,
        ),
        FaultKind::PoisonedRecords => description(
            "records are written by hand: noise, an unknown version, none at all",
            "each stays where it is or is put aside, and is logged; others are served",
            "an ERROR in the log names the job; `dwell fsck` lists it",
        ),
        FaultKind::RecordDamaged => description(
            "four records get the version of a later program, two of jobs that are due meanwhile; one job is cancelled, one moved, one fired by HTTP, one scheduled again",
            "each action is rejected with `unreadable_job`, by HTTP too, and all others go on; once the records can be read the jobs arrive",
            "the rejected messages, and an ERROR in the log that names the job",
        ),
        FaultKind::WrongType => description(
            "a key of a bucket is of another type",
            "requests for jobs of this bucket are rejected with `unreadable_job`, what waits in it stands still; other buckets are served",
            "`dwell_redis_errors_total{class=\"script\"}` rises, the log names the key's bucket",
        ),
    }
}
