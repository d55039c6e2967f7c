# Shared by the scripts of this folder: addresses, accounts and processes. The topology is one
# machine's: three etcd, three Patroni with PostgreSQL, HAProxy, PgBouncer, two Redis, three
# Sentinels. All listen on 127.0.0.1, from port HA_PORT (default 7000) up.
# shellcheck shell=bash
set -euo pipefail

nodes=(1 2 3)
base=${HA_PORT:-7000}
etcd_client() { echo $((base + $1)); }      # 1 to 3
etcd_peer() { echo $((base + 10 + $1)); }   # 1 to 3
postgres_port() { echo $((base + 20 + $1)); } # 1 to 3
patroni_port() { echo $((base + 30 + $1)); } # 1 to 3
redis_port() { echo $((base + 40 + $1)); }  # 1 and 2
sentinel_port() { echo $((base + 50 + $1)); } # 1 to 3
primary_port=$((base + 60))
replica_port=$((base + 61))
redis_master_port=$((base + 62))
pooler_port=$((base + 63))

# PostgreSQL refuses root: a root process runs everything as the account postgres.
if [ "$(id -u)" -eq 0 ]; then
    account=postgres
    dir=${HA_DIR:-/var/lib/svc-ha}
    as_account() { setpriv --reuid=$account --regid=$account --init-groups "$@"; }
else
    dir=${HA_DIR:-$(cd "$(dirname "$0")/../.." && pwd)/.svc/ha}
    as_account() { "$@"; }
fi

die() {
    echo "deploy/ha: $*" >&2
    exit 1
}

# postgres_programs prints the folder of PostgreSQL's newest programs.
postgres_programs() {
    for programs in $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV); do
        [ -x "$programs/initdb" ] && echo "$programs" && return
    done
    die 'PostgreSQL is not installed'
}

# alive NAME succeeds if the process runs. One that has ended may linger until init reaps it.
alive() {
    [ -s "$dir/run/$1.pid" ] || return 1
    case $(ps -o stat= -p "$(cat "$dir/run/$1.pid")") in '' | Z*) return 1 ;; esac
}

# launch NAME PROGRAM... runs a program in the background, as the account, unless it runs already.
launch() {
    local name=$1
    shift
    alive "$name" && return
    # A session of its own outlives the terminal. The shell writes its own id, and becomes the program.
    # shellcheck disable=SC2016 # the inner shell expands
    (cd "$dir" && as_account setsid --fork sh -c 'echo $$ >"$0"; exec "$@"' "$dir/run/$name.pid" "$@" \
        </dev/null >>"$dir/log/$name.log" 2>&1)
}

start_patroni() { launch "patroni$1" patroni "$dir/etc/patroni$1.yml"; }
start_redis() { launch "redis$1" redis-server "$dir/etc/redis$1.conf"; }

# leader prints the number of the node that leads, by Patroni's own answer; fails without one.
leader() {
    for n in "${nodes[@]}"; do
        if curl -fs -m 2 -o /dev/null "http://127.0.0.1:$(patroni_port "$n")/primary"; then
            echo "$n" && return
        fi
    done
    return 1
}

# synchronous_standby prints the node to which commits are copied before they are acknowledged.
synchronous_standby() {
    for n in "${nodes[@]}"; do
        if curl -fs -m 2 -o /dev/null "http://127.0.0.1:$(patroni_port "$n")/synchronous"; then
            echo "$n" && return
        fi
    done
    return 1
}

# replicas_stream succeeds if both other nodes follow the leader.
replicas_stream() {
    local streams
    streams=$(curl -fs -m 2 "http://127.0.0.1:$(patroni_port "$(leader)")/primary" | grep -o '"state": "streaming"' | wc -l)
    [ "$streams" -ge 2 ]
}

# redis_do N COMMAND... sends a command to a Redis.
redis_do() {
    local n=$1
    shift
    REDISCLI_AUTH=$(cat "$dir/etc/password") redis-cli -p "$(redis_port "$n")" "$@" 2>/dev/null
}

redis_master() {
    for n in 1 2; do
        redis_do "$n" role | head -1 | grep -q master && echo "$n" && return
    done
    return 1
}

redis_replica_follows() {
    redis_do "$(redis_master)" info replication | grep -q '^slave0:.*state=online'
}

# psql_primary runs psql as the superuser on the server that takes writes.
psql_primary() {
    PGPASSWORD=$(cat "$dir/etc/password") psql -qXAt -v ON_ERROR_STOP=1 \
        "host=127.0.0.1 port=$primary_port user=postgres connect_timeout=2 ${PSQL_DATABASE:+dbname=$PSQL_DATABASE}" "$@"
}

takes_writes() { [ "$(psql_primary -c 'SELECT pg_is_in_recovery()' 2>/dev/null)" = f ]; }

# await SECONDS WHAT COMMAND... repeats the command until it succeeds.
await() {
    local seconds=$1 what=$2 began=$SECONDS
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ $((SECONDS - began)) -lt "$seconds" ] || die "$what: not within $seconds s; see $dir/log"
        sleep 0.1
    done
}

# await_healthy waits until every copy is there again.
await_healthy() {
    await 120 'a leader' leader
    await 120 'both replicas' replicas_stream
    await 120 'a synchronous standby' synchronous_standby
    await 60 'a primary behind HAProxy' takes_writes
    await 60 'the replica of Redis' redis_replica_follows
}
