#!/bin/sh
# Starts an empty PostgreSQL in a temporary directory, prints the URL for 'pinstripe serve --catalog', and removes
# everything at its end (Ctrl-C). Needs Debian's package postgresql.
set -eu
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
# PostgreSQL refuses to run as root.
as=
if [ "$(id -u)" = 0 ]; then
    chown postgres: "$dir"
    as='setpriv --reuid=postgres --regid=postgres --clear-groups'
fi
cd "$dir"
$as "$bin/initdb" --username=pinstripe --auth=trust --encoding=UTF8 --locale=C --pgdata="$dir/data" >/dev/null
echo "pinstripe serve --catalog 'postgres:///postgres?host=$dir&user=pinstripe'"
$as "$bin/postgres" -D "$dir/data" -k "$dir" -c listen_addresses= -c shared_buffers=1GB -c max_wal_size=8GB
