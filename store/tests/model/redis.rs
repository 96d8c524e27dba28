//! A small Redis in memory: the data, which is copied and compared as a value, and the commands
//! that the scripts use. A command that is missing here fails the script with its name.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::reply::Reply;

/// The score of a member. Scripts write whole numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Score(pub(crate) i64);

/// The value of a key. A key with an empty value does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Entry {
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    Zset(BTreeMap<Vec<u8>, Score>),
}

/// All keys. A copy shares its values until one of both changes them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Store(BTreeMap<Vec<u8>, Rc<Entry>>);

/// The facts that a command knows besides the data.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Moment {
    /// Redis's clock, epoch µs.
    pub(crate) now_us: i64,
    /// The answer of INFO.
    pub(crate) info: &'static str,
}

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
type Hash = BTreeMap<Vec<u8>, Vec<u8>>;
type Zset = BTreeMap<Vec<u8>, Score>;
type Answer = Result<Reply, String>;

impl Store {
    /// A copy without these keys.
    pub(crate) fn without(&self, is_left_out: impl Fn(&[u8]) -> bool) -> Store {
        Store(
            self.0
                .iter()
                .filter(|(key, _)| !is_left_out(key))
                .map(|(key, entry)| (key.clone(), entry.clone()))
                .collect(),
        )
    }

    /// The hash of this key; `None` if there is no key.
    pub(crate) fn hash(&self, key: &[u8]) -> Result<Option<&Hash>, String> {
        match self.0.get(key).map(|entry| &**entry) {
            Some(Entry::Zset(_)) => Err(WRONG_TYPE.to_owned()),
            Some(Entry::Hash(hash)) => Ok(Some(hash)),
            None => Ok(None),
        }
    }

    /// The sorted set of this key; `None` if there is no key.
    pub(crate) fn zset(&self, key: &[u8]) -> Result<Option<&Zset>, String> {
        match self.0.get(key).map(|entry| &**entry) {
            Some(Entry::Hash(_)) => Err(WRONG_TYPE.to_owned()),
            Some(Entry::Zset(zset)) => Ok(Some(zset)),
            None => Ok(None),
        }
    }

    fn change_hash(&mut self, key: &[u8]) -> Result<&mut Hash, String> {
        let entry = self.0.entry(key.to_vec()).or_insert_with(|| Rc::new(Entry::Hash(Hash::new())));
        match Rc::make_mut(entry) {
            Entry::Hash(hash) => Ok(hash),
            Entry::Zset(_) => Err(WRONG_TYPE.to_owned()),
        }
    }

    fn change_zset(&mut self, key: &[u8]) -> Result<&mut Zset, String> {
        let entry = self.0.entry(key.to_vec()).or_insert_with(|| Rc::new(Entry::Zset(Zset::new())));
        match Rc::make_mut(entry) {
            Entry::Zset(zset) => Ok(zset),
            Entry::Hash(_) => Err(WRONG_TYPE.to_owned()),
        }
    }

    fn drop_empty(&mut self, key: &[u8]) {
        let is_empty = self.0.get(key).is_some_and(|entry| match &**entry {
            Entry::Hash(hash) => hash.is_empty(),
            Entry::Zset(zset) => zset.is_empty(),
        });
        if is_empty {
            self.0.remove(key);
        }
    }

    /// Runs one command.
    pub(crate) fn command(&mut self, moment: &Moment, words: &[Vec<u8>]) -> Answer {
        let Some((command, args)) = words.split_first() else {
            return Err("ERR no command".to_owned());
        };
        let key = args.first().map(Vec::as_slice).unwrap_or_default();
        let field = args.get(1).map(Vec::as_slice).unwrap_or_default();
        match command.as_slice() {
            b"TIME" => {
                let words =
                    [moment.now_us.div_euclid(1_000_000), moment.now_us.rem_euclid(1_000_000)];
                Ok(Reply::Array(words.map(|word| Reply::bulk(word.to_string())).to_vec()))
            }
            b"INFO" => Ok(Reply::bulk(moment.info)),
            b"EXISTS" => {
                Ok(Reply::int(args.iter().filter(|key| self.0.contains_key(*key)).count()))
            }
            b"UNLINK" | b"DEL" => {
                Ok(Reply::int(args.iter().filter(|key| self.0.remove(*key).is_some()).count()))
            }
            b"TYPE" => Ok(Reply::Status(self.kind(key).to_owned())),
            // No key of this Redis expires.
            b"PERSIST" => Ok(Reply::Int(0)),
            b"PTTL" => Ok(Reply::Int(if self.0.contains_key(key) { -1 } else { -2 })),
            b"RENAME" => self.rename(key, field).map(|()| Reply::Status("OK".to_owned())),
            b"RENAMENX" if self.0.contains_key(field) => Ok(Reply::Int(0)),
            b"RENAMENX" => self.rename(key, field).map(|()| Reply::Int(1)),
            b"HGET" => Ok(Reply::maybe(self.hash(key)?.and_then(|hash| hash.get(field)))),
            b"HMGET" => {
                let hash = self.hash(key)?;
                Ok(Reply::Array(
                    args[1..]
                        .iter()
                        .map(|field| Reply::maybe(hash.and_then(|hash| hash.get(field))))
                        .collect(),
                ))
            }
            b"HGETALL" => {
                let pairs = self.hash(key)?.into_iter().flatten();
                Ok(Reply::Array(
                    pairs
                        .flat_map(|(field, value)| [Reply::bulk(&**field), Reply::bulk(&**value)])
                        .collect(),
                ))
            }
            b"HLEN" => Ok(Reply::int(self.hash(key)?.map_or(0, BTreeMap::len))),
            b"HSTRLEN" => {
                Ok(Reply::int(self.hash(key)?.and_then(|hash| hash.get(field)).map_or(0, Vec::len)))
            }
            b"HEXISTS" => Ok(Reply::int(usize::from(
                self.hash(key)?.is_some_and(|hash| hash.contains_key(field)),
            ))),
            b"HSET" => self.hset(key, &args[1..]),
            b"HSETNX" if self.hash(key)?.is_some_and(|hash| hash.contains_key(field)) => {
                Ok(Reply::Int(0))
            }
            b"HSETNX" => self.hset(key, &args[1..]),
            b"HINCRBY" => {
                let sum = self
                    .hash(key)?
                    .and_then(|hash| hash.get(field))
                    .map_or(Ok(0), |text| number(text))?
                    + number(&args[2])?;
                self.change_hash(key)?.insert(field.to_vec(), sum.to_string().into_bytes());
                Ok(Reply::Int(sum))
            }
            b"HDEL" => self.remove(key, &args[1..], false),
            b"ZREM" => self.remove(key, &args[1..], true),
            b"ZADD" => self.zadd(key, &args[1..]),
            b"ZCARD" => Ok(Reply::int(self.zset(key)?.map_or(0, BTreeMap::len))),
            b"ZSCORE" => Ok(self
                .zset(key)?
                .and_then(|zset| zset.get(field))
                .map_or(Reply::Nil, |score| Reply::bulk(score.0.to_string()))),
            b"ZCOUNT" => Ok(Reply::int(self.between(key, field, &args[2])?.len())),
            b"ZRANGE" => {
                let found = cut(self.ordered(key)?, number(field)?, number(&args[2])?);
                listed(found, &args[3..])
            }
            b"ZRANGEBYSCORE" => listed(self.between(key, field, &args[2])?, &args[3..]),
            b"ZREMRANGEBYRANK" => {
                let gone: Vec<Vec<u8>> = cut(self.ordered(key)?, number(field)?, number(&args[2])?)
                    .into_iter()
                    .map(|(member, _)| member)
                    .collect();
                self.remove(key, &gone, true)
            }
            _ => Err(format!(
                "ERR the Redis of this test knows no {}: add it to redis.rs",
                String::from_utf8_lossy(command)
            )),
        }
    }

    fn kind(&self, key: &[u8]) -> &'static str {
        match self.0.get(key).map(|entry| &**entry) {
            None => "none",
            Some(Entry::Hash(_)) => "hash",
            Some(Entry::Zset(_)) => "zset",
        }
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), String> {
        let entry = self.0.remove(from).ok_or("ERR no such key")?;
        self.0.insert(to.to_vec(), entry);
        Ok(())
    }

    fn hset(&mut self, key: &[u8], pairs: &[Vec<u8>]) -> Answer {
        let hash = self.change_hash(key)?;
        let new = pairs
            .chunks_exact(2)
            .filter(|pair| hash.insert(pair[0].clone(), pair[1].clone()).is_none())
            .count();
        Ok(Reply::int(new))
    }

    fn zadd(&mut self, key: &[u8], pairs: &[Vec<u8>]) -> Answer {
        let scores: Vec<Score> = pairs
            .chunks_exact(2)
            .map(|pair| number(&pair[0]).map(Score))
            .collect::<Result<_, _>>()?;
        let zset = self.change_zset(key)?;
        let new = pairs
            .chunks_exact(2)
            .zip(scores)
            .filter(|(pair, score)| zset.insert(pair[1].clone(), *score).is_none())
            .count();
        Ok(Reply::int(new))
    }

    fn remove(&mut self, key: &[u8], names: &[Vec<u8>], is_zset: bool) -> Answer {
        let has = if is_zset { self.zset(key)?.is_some() } else { self.hash(key)?.is_some() };
        if !has {
            return Ok(Reply::Int(0));
        }
        let gone = if is_zset {
            let zset = self.change_zset(key)?;
            names.iter().filter(|name| zset.remove(*name).is_some()).count()
        } else {
            let hash = self.change_hash(key)?;
            names.iter().filter(|name| hash.remove(*name).is_some()).count()
        };
        self.drop_empty(key);
        Ok(Reply::int(gone))
    }

    /// Members by score, then by name.
    fn ordered(&self, key: &[u8]) -> Result<Vec<(Vec<u8>, Score)>, String> {
        let mut members: Vec<_> = self
            .zset(key)?
            .into_iter()
            .flatten()
            .map(|(member, score)| (member.clone(), *score))
            .collect();
        members.sort_by(|one, other| (one.1, &one.0).cmp(&(other.1, &other.0)));
        Ok(members)
    }

    fn between(
        &self,
        key: &[u8],
        least: &[u8],
        most: &[u8],
    ) -> Result<Vec<(Vec<u8>, Score)>, String> {
        let (least, most) = (bound(least, 1)?, bound(most, -1)?);
        Ok(self
            .ordered(key)?
            .into_iter()
            .filter(|(_, score)| (least..=most).contains(&score.0))
            .collect())
    }
}

fn number(text: &[u8]) -> Result<i64, String> {
    let read = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    read.ok_or_else(|| format!("ERR {} is not a whole number", String::from_utf8_lossy(text)))
}

/// `inward`: the step from an exclusive bound to the next inclusive one.
fn bound(text: &[u8], inward: i64) -> Result<i64, String> {
    match text {
        b"-inf" => Ok(i64::MIN),
        b"+inf" => Ok(i64::MAX),
        [b'(', rest @ ..] => Ok(number(rest)? + inward),
        text => number(text),
    }
}

fn cut<T>(list: Vec<T>, first: i64, last: i64) -> Vec<T> {
    let len = i64::try_from(list.len()).unwrap_or(i64::MAX);
    let place = |at: i64| if at < 0 { (len + at).max(0) } else { at };
    let (first, last) = (place(first), if last < 0 { len + last } else { last });
    list.into_iter()
        .zip(0..)
        .filter(|(_, at)| (first..=last).contains(at))
        .map(|(item, _)| item)
        .collect()
}

/// The members, with `WITHSCORES` and `LIMIT offset count` as these options say.
fn listed(mut found: Vec<(Vec<u8>, Score)>, options: &[Vec<u8>]) -> Answer {
    let (mut scores, mut at) = (false, 0);
    while let Some(option) = options.get(at) {
        match option.as_slice() {
            b"WITHSCORES" => (scores, at) = (true, at + 1),
            b"LIMIT" => {
                let (offset, count) = (number(&options[at + 1])?, number(&options[at + 2])?);
                let skipped = found.into_iter().skip(usize::try_from(offset).unwrap_or(usize::MAX));
                // A negative count is none.
                found = skipped.take(usize::try_from(count).unwrap_or(usize::MAX)).collect();
                at += 3;
            }
            other => return Err(format!("ERR option {}", String::from_utf8_lossy(other))),
        }
    }
    let items = found.into_iter().flat_map(|(member, score)| {
        let score = scores.then(|| Reply::bulk(score.0.to_string()));
        std::iter::once(Reply::Bulk(member)).chain(score)
    });
    Ok(Reply::Array(items.collect()))
}
