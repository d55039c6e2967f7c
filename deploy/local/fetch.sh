#!/bin/sh
# Installs missing dependencies of `svc dev` and the tests: PostgreSQL and Redis. The argument
# `chromium` adds a browser for the page tests, `pgbouncer` the pooler, `zbar` a second decoder for
# the QR code tests, `node`, `php`, `python` and `ruby` run the receivers of a guide, and `npm`
# builds the TypeScript client. Uses apt-get (as root or through sudo) or brew. Starts no service,
# because the servers of this repository are private.
set -eu

min_postgres=15
min_redis=7

# at_least MINIMUM PATTERN PROGRAM... succeeds if one of the programs prints a sufficient version.
# PATTERN is a sed pattern whose first group is the major version.
at_least() {
    minimum=$1 pattern=$2
    shift 2
    for program; do
        major=$("$program" --version 2>/dev/null | sed -n "s/$pattern/\1/p") || continue
        [ "${major:-0}" -ge "$minimum" ] && return 0
    done
    return 1
}

have_postgres() {
    at_least $min_postgres '.*(PostgreSQL) \([0-9][0-9]*\).*' postgres /usr/lib/postgresql/*/bin/postgres \
        /usr/pgsql-*/bin/postgres /opt/homebrew/opt/postgresql@*/bin/postgres /usr/local/opt/postgresql@*/bin/postgres \
        /home/linuxbrew/.linuxbrew/opt/postgresql@*/bin/postgres
}

have_redis() {
    at_least $min_redis '.*v=\([0-9][0-9]*\)\..*' redis-server /usr/bin/redis-server /opt/homebrew/bin/redis-server \
        /usr/local/bin/redis-server /home/linuxbrew/.linuxbrew/bin/redis-server
}

have_pgbouncer() {
    command -v pgbouncer >/dev/null 2>&1 || [ -x /usr/sbin/pgbouncer ]
}

have_chromium() {
    for program in chromium chromium-browser google-chrome google-chrome-stable \
        '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome' \
        /Applications/Chromium.app/Contents/MacOS/Chromium; do
        command -v "$program" >/dev/null 2>&1 && return 0
    done
    return 1
}

missing() {
    have_postgres || echo postgres
    have_redis || echo redis
    case " $* " in *" chromium "*) have_chromium || echo chromium ;; esac
    case " $* " in *" zbar "*) command -v zbarimg >/dev/null 2>&1 || echo zbar ;; esac
    case " $* " in *" pgbouncer "*) have_pgbouncer || echo pgbouncer ;; esac
    case " $* " in *" node "*) command -v node >/dev/null 2>&1 || echo node ;; esac
    case " $* " in *" npm "*) command -v npm >/dev/null 2>&1 || echo npm ;; esac
    case " $* " in *" php "*) command -v php >/dev/null 2>&1 || echo php ;; esac
    case " $* " in *" python "*) command -v python3 >/dev/null 2>&1 || echo python ;; esac
    case " $* " in *" ruby "*) command -v ruby >/dev/null 2>&1 || echo ruby ;; esac
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# Debian starts services when it installs them, and creates a PostgreSQL cluster. These two files
# prevent both while the script runs. An existing policy file is kept.
policy=/usr/sbin/policy-rc.d
no_cluster=/etc/postgresql-common/createcluster.d/svc-local.conf
made_policy=

cleanup() {
    [ -z "$made_policy" ] || as_root rm -f "$policy"
    as_root rm -f "$no_cluster"
}

with_apt() {
    packages=
    for name; do
        case $name in
        postgres) packages="$packages postgresql" ;;
        redis) packages="$packages redis-server" ;;
        chromium) packages="$packages chromium" ;;
        pgbouncer) packages="$packages pgbouncer" ;;
        zbar) packages="$packages zbar-tools" ;;
        node) packages="$packages nodejs" ;;
        npm) packages="$packages npm" ;;
        php) packages="$packages php-cli" ;;
        python) packages="$packages python3" ;;
        ruby) packages="$packages ruby" ;;
        esac
    done
    echo "Installing with apt-get:$packages"
    trap cleanup EXIT
    trap 'exit 130' INT TERM
    as_root mkdir -p "${no_cluster%/*}"
    echo 'create_main_cluster = false' | as_root tee "$no_cluster" >/dev/null
    if [ ! -e "$policy" ]; then
        made_policy=yes
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod 755 "$policy"
    fi
    # The package lists may be missing or outdated.
    # shellcheck disable=SC2086 # word splitting is intended
    if ! apt-cache show $packages >/dev/null 2>&1 || ! apt_install $packages >/dev/null 2>&1; then
        as_root apt-get -qq update
        log=$(apt_install $packages 2>&1) || {
            printf '%s\n' "$log" >&2
            exit 1
        }
    fi
    case $packages in *redis-server*)
        # Do not start the service at the next boot.
        [ ! -d /run/systemd/system ] || as_root systemctl --quiet disable redis-server
        ;;
    esac
}

apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@"
}

with_brew() {
    for name; do
        case $name in
        postgres) brew install postgresql@16 ;;
        redis) brew install redis ;;
        chromium) brew install --cask google-chrome ;;
        zbar) brew install zbar ;;
        npm) brew install node ;;
        pgbouncer | node | php | python | ruby) brew install "$name" ;;
        esac
    done
}

wanted=$(missing "$@")
[ -n "$wanted" ] || exit 0
# shellcheck disable=SC2086 # word splitting is intended
if command -v apt-get >/dev/null 2>&1; then
    with_apt $wanted
elif command -v brew >/dev/null 2>&1; then
    with_brew $wanted
fi
left=$(missing "$@")
[ -z "$left" ] || {
    echo "Neither apt-get nor brew could install everything. Please install by hand:" \
        "PostgreSQL $min_postgres or newer, Redis $min_redis or newer (missing:" $left")" >&2
    exit 1
}
