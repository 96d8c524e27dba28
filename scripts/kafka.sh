#!/usr/bin/env bash
# Finds or installs what the tests need of Apache Kafka: a Java of 17 or later, and the jars of
# scripts/kafka/pom.xml in .servers/kafka/.
# DWELL_KAFKA_LIBS names another folder of jars. Starts nothing. Run again, it only looks.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

minimum=17
libs=$PWD/.servers/kafka

nothing_possible() {
    fail "the tests need Apache Kafka, and $1. Any of these helps:
  - on Debian or Ubuntu, run this once as root, with a network: it installs Java and Maven, and takes Kafka from Maven Central;
  - install Java $minimum or later and Maven, and run this again;
  - unpack Kafka 4 from kafka.apache.org and set DWELL_KAFKA_LIBS to its folder 'libs'."
}

# java_version: what the Java on PATH calls itself, as 17.0.15; nothing where there is none.
java_version() { java -version 2>&1 | grep -oE '"[0-9.]+' | tr -d '"' | head -n 1; }

has_kafka() { compgen -G "$1/kafka_2.1?-*.jar" >/dev/null && compgen -G "$1/kafka-clients-*.jar" >/dev/null; }

at_least "$(java_version)" "$minimum" || { apt_install default-jre-headless && at_least "$(java_version)" "$minimum"; } ||
    nothing_possible "found no Java of version $minimum or later, and could not install one"

if [ -n "${DWELL_KAFKA_LIBS:-}" ] && [ "$DWELL_KAFKA_LIBS" != "$libs" ]; then
    has_kafka "$DWELL_KAFKA_LIBS" || fail "DWELL_KAFKA_LIBS=$DWELL_KAFKA_LIBS holds no Kafka: no kafka_2.13-….jar and kafka-clients-….jar"
    mkdir -p .servers && ln -sfn "$DWELL_KAFKA_LIBS" "$libs"
elif ! has_kafka "$libs"; then
    command -v mvn >/dev/null || apt_install maven || nothing_possible "found no Maven to take it from Maven Central with, and could not install it"
    say "taking Apache Kafka from Maven Central"
    # Through a rename, so that two runs at once never see half of it.
    folder=$(mktemp -d "$PWD/.servers/kafka.XXXXXX")
    trap 'rm -rf "$folder"' EXIT
    quietly mvn --batch-mode --quiet --strict-checksums --file scripts/kafka/pom.xml dependency:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$folder/libs" || nothing_possible "Maven could not fetch it"
    has_kafka "$folder/libs" || nothing_possible "Maven fetched something else"
    rm -rf "$libs"
    mv -T "$folder/libs" "$libs"
fi
say "kafka $(compgen -G "$libs/kafka-clients-*.jar" | sed 's/.*-\([0-9.]*\)\.jar/\1/'), java $(java_version): .servers/kafka"
