//! `dwell upgrade`: a namespace of this schema, and those that are refused.

use std::collections::BTreeMap;

use serde_json::json;

use super::ls::Listed;

/// The description of the namespace.
async fn described(listed: &Listed) -> BTreeMap<String, String> {
    let key = listed.fixture.store.keys().meta();
    redis::cmd("HGETALL").arg(key).query_async(&mut listed.fixture.raw.clone()).await.unwrap()
}

#[tokio::test]
async fn a_namespace_of_this_schema_needs_no_upgrade() {
    let listed = Listed::new().await;
    let (namespace, before) = (&listed.fixture.settings.namespace, described(&listed).await);
    let said = listed.run(&["upgrade"]);
    let text =
        format!("namespace {namespace} has schema 3, which this version writes: nothing to do\n");
    assert_eq!((said.code, said.out, said.err.as_str()), (0, text, ""));
    let said = listed.run(&["upgrade", "-o", "json"]);
    assert_eq!(said.object(), json!({"namespace": namespace, "from": 3, "to": 3}));
    assert_eq!(said.code, 0);
    assert_eq!(described(&listed).await, before);
}

#[tokio::test]
async fn a_namespace_of_another_schema_is_refused_and_the_refusal_says_what_helps() {
    let listed = Listed::new().await;
    for (schema, hint) in
        [("2", "a version before 0.1.0 wrote it"), ("4", "run the version of Dwell that wrote it")]
    {
        let _: i64 = redis::cmd("HSET")
            .arg(listed.fixture.store.keys().meta())
            .arg("schema")
            .arg(schema)
            .query_async(&mut listed.fixture.raw.clone())
            .await
            .unwrap();
        let before = described(&listed).await;
        for arguments in
            [&["stats"][..], &["fsck", "--repair"], &["upgrade"], &["upgrade", "-o", "json"]]
        {
            let said = listed.run(arguments);
            assert_eq!((said.code, said.out.as_str()), (78, ""), "{arguments:?}: {}", said.err);
            let has = format!(" has schema {schema}, ");
            for part in [has.as_str(), hint] {
                assert!(said.err.contains(part), "{arguments:?} on {schema}: {}", said.err);
            }
        }
        assert_eq!(described(&listed).await, before);
    }
}

#[tokio::test]
async fn a_redis_that_is_away_exits_69_and_no_namespace_78() {
    let listed = Listed::new().await;
    let said = listed.run(&["upgrade", "--set", "redis.urls=redis://127.0.0.1:1"]);
    assert_eq!((said.code, said.out.as_str()), (69, ""), "{}", said.err);
    let said = listed.run(&["upgrade", "--set", "redis.namespace=nobody-uses-this"]);
    assert_eq!((said.code, said.out.as_str()), (78, ""), "{}", said.err);
    assert!(said.err.contains("there is no namespace"), "{}", said.err);
    assert_eq!(listed.run(&["upgrade", "all"]).code, 64);
}
