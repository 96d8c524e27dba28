//! Tests of the changes, and that lapin's parser accepts the result.

use lapin::protocol::basic::parse_properties;
use lapin::types::AMQPValue;
use lapin::types::parsing::parse_field_table;
use proptest::prelude::*;

use super::*;

/// Headers of any shape, with any bytes in their strings.
#[derive(Debug, Clone)]
enum Shape {
    Fixed(u8, Vec<u8>),
    Long(u8, Vec<u8>),
    List(Vec<Shape>),
    Table(Vec<(Vec<u8>, Shape)>),
}

impl Shape {
    fn write(&self) -> Vec<u8> {
        match self {
            Shape::Fixed(kind, bytes) => [&[*kind], &bytes[..]].concat(),
            Shape::Long(kind, bytes) => long(*kind, bytes),
            Shape::List(values) => {
                long(b'A', &values.iter().flat_map(Shape::write).collect::<Vec<_>>())
            }
            Shape::Table(entries) => {
                let entries: Vec<_> = entries
                    .iter()
                    .flat_map(|(name, value)| [short(name), value.write()].concat())
                    .collect();
                long(b'F', &entries)
            }
        }
    }
}

fn long(kind: u8, bytes: &[u8]) -> Vec<u8> {
    [&[kind], &u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

fn short(bytes: &[u8]) -> Vec<u8> {
    [&[u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

/// This many nested lists and tables in turn, around a number.
fn nested(depth: usize) -> Vec<u8> {
    (0..depth).rev().fold(b"b\x07".to_vec(), |inner, level| {
        if level % 2 == 0 { long(b'A', &inner) } else { long(b'F', &[short(b"k"), inner].concat()) }
    })
}

/// The payload of a header frame with only these headers.
fn header(entries: &[u8]) -> Vec<u8> {
    let head = [0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0b0010_0000, 0];
    [&head, &long(b'F', entries)[1..]].concat()
}

/// The value of the only header as lapin reads it, and whether anything changed.
fn read(entries: &[u8]) -> (AMQPValue, bool) {
    let mut payload = header(entries);
    let changed = sanitize(HEADER_FRAME, &mut payload);
    let (rest, table) = parse_field_table(&payload[14..]).unwrap();
    assert!(rest.is_empty());
    let (_, value) = table.inner().iter().next().unwrap();
    (value.clone(), changed)
}

#[test]
fn what_is_nested_too_deep_comes_as_bytes() {
    for depth in [0, 1, MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, MAX_DEPTH + 2, 1000, 20_000] {
        let (mut value, changed) = read(&[short(b"h"), nested(depth)].concat());
        assert_eq!(changed, depth > MAX_DEPTH, "{depth}");
        for _ in 0..depth.min(MAX_DEPTH) {
            value = match value {
                AMQPValue::FieldArray(values) => values.as_slice()[0].clone(),
                AMQPValue::FieldTable(table) => table.inner()["k"].clone(),
                other => panic!("{other:?} at {depth}"),
            };
        }
        let AMQPValue::ByteArray(bytes) = value else {
            assert!(
                depth <= MAX_DEPTH && value == AMQPValue::ShortShortInt(7),
                "{depth}: {value:?}"
            );
            continue;
        };
        assert_eq!(
            bytes.as_slice(),
            &nested(depth)[5 + (5 * MAX_DEPTH + MAX_DEPTH / 2 * 2)..],
            "{depth}"
        );
    }
}

#[test]
fn a_wide_table_is_left_as_it_is() {
    let entries: Vec<_> =
        (0..3000).flat_map(|_| [short("ä".as_bytes()), nested(2)].concat()).collect();
    let mut payload = header(&entries);
    let before = payload.clone();
    assert!(!sanitize(HEADER_FRAME, &mut payload));
    assert_eq!(payload, before);
}

#[test]
fn names_become_text() {
    for (name, as_text) in [
        (&b"\xff"[..], "\x1a"),
        (b"a\xffb", "a\x1ab"),
        (b"\xc3", "\x1a"),
        (b"\xc3\xa4\xc3", "ä\x1a"),
        (b"\xe2\x82z\xf0\x9f", "\x1a\x1az\x1a\x1a"),
        (b"\xed\xa0\x80", "\x1a\x1a\x1a"),
    ] {
        let mut payload = header(
            &[short(name), long(b'A', &long(b'F', &[short(name), b"V".to_vec()].concat()))]
                .concat(),
        );
        assert!(sanitize(HEADER_FRAME, &mut payload));
        let (_, table) = parse_field_table(&payload[14..]).unwrap();
        let AMQPValue::FieldArray(list) = &table.inner()[as_text] else { panic!("{table:?}") };
        let AMQPValue::FieldTable(inner) = &list.as_slice()[0] else { panic!("{list:?}") };
        assert_eq!(inner.inner()[as_text], AMQPValue::Void);
    }
}

/// Every property, with these bytes in those that are strings.
fn all_properties(text: &[u8]) -> Vec<u8> {
    let mut payload = vec![0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0b1111_1111, 0b1111_1100];
    for bit in (2..16).rev() {
        payload.extend(match bit {
            13 => long(b'F', &[short(text), b"S\0\0\0\x01\xff".to_vec()].concat())[1..].to_vec(),
            12 | 11 => vec![0xff],
            6 => vec![0xff; 8],
            _ => short(text),
        });
    }
    payload
}

#[test]
fn every_property_becomes_text_and_nothing_else_changes() {
    let (mut payload, mut right) = (all_properties(b"a\xff"), all_properties(b"a\x1a"));
    assert!(sanitize(HEADER_FRAME, &mut payload));
    assert_eq!(payload, right);
    assert!(!sanitize(HEADER_FRAME, &mut right));
    let (rest, properties) = parse_properties(&payload[12..]).unwrap();
    assert!(
        rest.is_empty() && properties.cluster_id().as_ref().unwrap().as_str() == "a\x1a",
        "{properties:?}"
    );
}

#[test]
fn methods_become_text() {
    let method = |class: u8, method: u8, head: &[u8], texts: usize, text: &[u8], tail: &[u8]| {
        [&[0, class, 0, method], head, &short(text).repeat(texts), tail].concat()
    };
    let tag = [0xff; 9];
    let consumer_and_tag = [&short(b"c"), &tag[..]].concat();
    for (class, number, head, texts, tail) in [
        (60, 60, &consumer_and_tag[..], 2, &b""[..]),
        (60, 71, &tag, 2, b"\xff\xff\xff\xff"),
        (60, 50, b"\xff\xff", 3, b""),
        (20, 40, b"\xff\xff", 1, b"\xff\xff\xff\xff"),
        (10, 50, b"\xff\xff", 1, b"\xff\xff\xff\xff"),
        (10, 60, b"", 1, b""),
    ] {
        let mut payload = method(class, number, head, texts, b"\xffk", tail);
        assert!(sanitize(METHOD_FRAME, &mut payload));
        // The server's own words are for people; names and keys of producers must not become
        // others.
        let marked: &[u8] = if texts == 2 { b"\x1ak" } else { b"?k" };
        assert_eq!(payload, method(class, number, head, texts, marked, tail));
    }
    let mut ack = method(60, 80, &tag, 0, b"", b"");
    assert!(!sanitize(METHOD_FRAME, &mut ack));
}

fn shapes() -> impl Strategy<Value = Shape> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..8);
    let fixed = prop_oneof![
        Just((b"V", 0)),
        proptest::sample::select(vec![
            (b"t", 1),
            (b"b", 1),
            (b"B", 1),
            (b"s", 2),
            (b"U", 2),
            (b"u", 2),
            (b"I", 4),
            (b"i", 4)
        ]),
        proptest::sample::select(vec![
            (b"f", 4),
            (b"D", 5),
            (b"L", 8),
            (b"l", 8),
            (b"d", 8),
            (b"T", 8)
        ]),
    ];
    let leaf = prop_oneof![
        (fixed, any::<u8>())
            .prop_map(|((kind, length), byte)| Shape::Fixed(kind[0], vec![byte; length])),
        (any::<bool>(), bytes())
            .prop_map(|(text, bytes)| Shape::Long(if text { b'S' } else { b'x' }, bytes)),
    ];
    leaf.prop_recursive(60, 200, 3, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Shape::List),
            proptest::collection::vec((bytes(), inner), 0..3).prop_map(Shape::Table),
        ]
    })
}

proptest! {
    #[test]
    fn the_parser_takes_whatever_is_well_formed(shape in shapes(), more in 0_usize..60) {
        let value = (0..more).fold(shape, |inner, _| Shape::List(vec![inner]));
        let mut payload = header(&[short(b"h"), value.write()].concat());
        sanitize(HEADER_FRAME, &mut payload);
        let (rest, table) = parse_field_table(&payload[14..]).unwrap();
        prop_assert!(rest.is_empty() && table.inner().len() == 1);
        prop_assert!(!sanitize(HEADER_FRAME, &mut payload));
    }

    #[test]
    fn nothing_panics(kind in 0_u8..4, mut payload in proptest::collection::vec(any::<u8>(), 0..300)) {
        sanitize(kind, &mut payload);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Truncated, or with one byte changed, at any position.
    #[test]
    fn nothing_damaged_panics_or_reaches_the_parser_too_deep(shape in shapes(), length in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut payload = header(&[short(b"h"), (0..1000).fold(shape, |inner, _| Shape::List(vec![inner])).write()].concat());
        let at = at.index(payload.len());
        payload[at] = byte;
        payload.truncate(length.index(payload.len() + 1));
        sanitize(HEADER_FRAME, &mut payload);
        if let Some(properties) = payload.get(12..) {
            // Unchanged, this would overflow the stack of a thread.
            let _ = parse_properties(properties);
        }
    }
}
