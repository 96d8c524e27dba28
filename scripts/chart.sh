#!/usr/bin/env bash
# Checks the chart without a cluster: lint and template of each set of values below its ci/, of the chart
# that takes the sidecar, and that values which contradict each other are refused. With kubectl the
# overlays of Kustomize too. What it made is in the folder that it names.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

helm=${DWELL_HELM:-$PWD/.servers/bin/helm}
chart=deploy/helm/dwell
out=$PWD/target/chart
rm -rf "$out"
mkdir -p "$out"
# Nothing of the user's own Helm is read or changed.
export HELM_CACHE_HOME=$out/home/cache HELM_CONFIG_HOME=$out/home/config HELM_DATA_HOME=$out/home/data

# render NAME CHART OPTION…: lints, and leaves what the chart makes in NAME.yaml.
render() {
    local name=$1 from=$2
    shift 2
    quietly "$helm" lint --strict "$from" "$@" || fail "$name: lint"
    "$helm" template release "$from" --namespace jobs "$@" >"$out/$name.yaml" 2>"$out/$name.log" || { cat "$out/$name.log" >&2; fail "$name: template"; }
    say "$name: $(grep -c '^kind: ' "$out/$name.yaml") objects"
}

# has NAME KIND COUNT: how many objects of the kind were made?
has() {
    local count
    count=$(grep -c "^kind: $2\$" "$out/$1.yaml" || true)
    [ "$count" = "$3" ] || fail "$1: $count objects $2 instead of $3"
}

# says NAME TEXT: is the text in what was made?
says() { grep -qF -- "$2" "$out/$1.yaml" || fail "$1 lacks: $2"; }

# refuses TEXT OPTION…: does the chart refuse the values, with this text?
refuses() {
    local text=$1 said
    shift
    if said=$("$helm" template release "$chart" "$@" 2>&1); then fail "not refused: $*"; fi
    grep -qF -- "$text" <<<"$said" || fail "refused without \"$text\": $said"
}

render default $chart
has default Deployment 1
has default PodDisruptionBudget 1
has default NetworkPolicy 1
has default PodMonitor 0
says default 'terminationGracePeriodSeconds: 15'
says default 'args: ["check","--offline"]'

render deployment $chart --values $chart/ci/deployment-values.yaml
has deployment Service 1
has deployment PodMonitor 1
has deployment PrometheusRule 1
says deployment 'value: "25s"'
says deployment 'terminationGracePeriodSeconds: 30'
# The alerts are those of Prometheus itself, all of them and with their braces.
[ "$(sed -n 's/^ *- alert: //p' "$out/deployment.yaml")" = "$(sed -n 's/^ *- alert: //p' deploy/prometheus/alerts.yml)" ] || fail "deployment: other alerts than alerts.yml"
# shellcheck disable=SC2016
says deployment '{{ $labels.instance }}'

render least $chart --values $chart/ci/least-values.yaml
has least PodDisruptionBudget 0
has least NetworkPolicy 0
has least Job 0

render sidecar $chart --values $chart/ci/sidecar-values.yaml
has sidecar Deployment 0
has sidecar ConfigMap 2
says sidecar 'dwell-sidecar: release-dwell'

# A dependency from the folder beside it is copied into the chart.
cp -RL deploy/helm "$out/charts"
quietly "$helm" dependency build "$out/charts/sidecar-example" || fail "sidecar-example: dependency build"
render sidecar-example "$out/charts/sidecar-example"
has sidecar-example Deployment 1
says sidecar-example 'restartPolicy: Always'
says sidecar-example 'terminationGracePeriodSeconds: 45'
says sidecar-example 'dwell-sidecar: release-dwell'

# Every container of every set is as the Pod Security Standard "restricted" wants it.
for name in default deployment least sidecar-example; do
    pods=$(grep -c 'automountServiceAccountToken: false' "$out/$name.yaml")
    [ "$(grep -c 'allowPrivilegeEscalation: false' "$out/$name.yaml")" -ge "$pods" ] || fail "$name: a container may get more rights"
    [ "$(grep -c 'type: RuntimeDefault' "$out/$name.yaml")" -ge "$pods" ] || fail "$name: a pod without seccomp"
done

refuses 'set drainSeconds' --set-string config='shutdown.drain = "20s"'
refuses 'set probes.port' --set-string config='probes.listen = "[::]:1"'
refuses 'config is no TOML' --set-string config='redis'
refuses 'networkPolicy.scrapers' --set podMonitor.enabled=true
refuses 'networkPolicy.clients' --set service.enabled=true
refuses 'of deployment mode' --set service.enabled=true --set mode=sidecar
refuses 'dditional propert' --set replica=3
refuses 'image' --set image.tag=latest
refuses 'mode' --set mode=daemon
refuses 'drainSeconds' --set drainSeconds=3601
refuses 'DWELL_SHUTDOWN__DRAIN' --set env.DWELL_SHUTDOWN__DRAIN=5s

# Each value has its row in the table.
values=$(sed -n 's/^\([a-zA-Z]*\):.*/\1/p' $chart/values.yaml)
for value in $values; do
    grep -qE "^\| \`$value(\`|\.)" $chart/README.md || fail "README.md of the chart has no row for $value"
done

if command -v kubectl >/dev/null; then
    for overlay in deployment sidecar-example; do
        kubectl kustomize deploy/kustomize/overlays/$overlay >"$out/kustomize-$overlay.yaml" || fail "kustomize: $overlay"
        say "kustomize $overlay: $(grep -c '^kind: ' "$out/kustomize-$overlay.yaml") objects"
    done
else
    say "no kubectl: the overlays of Kustomize were not built"
fi
say "chart: $out"
