#!/bin/sh
# Usage: start.sh DIR
# Starts a Ceph cluster for tests on the loopback interface: one monitor, one manager, three OSDs in sparse files, one
# gateway. DIR must be empty; it receives all state. Run as root. Packages: ceph-mon ceph-mgr ceph-osd ceph-common
# radosgw curl. The pool is 'data', the bucket is 'tests', and DIR/ceph.conf names the cluster. To stop the cluster:
# kill $(cat DIR/*.pid)
set -eu
cd "$1"
dir=$PWD
test -z "$(ls -A)" || { echo "start.sh: $dir is not empty" >&2; exit 2; }
mon2=${CEPH_MON_PORT:-23300} mon1=${CEPH_MON_V1_PORT:-26789} rgw=${CEPH_RGW_PORT:-27480}
wait=120

cat >ceph.conf <<END
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon host = [v2:127.0.0.1:$mon2,v1:127.0.0.1:$mon1]
public addr = 127.0.0.1
ms bind ipv6 = false
keyring = $dir/keyring
run dir = $dir
crash dir = $dir
log file = $dir/\$name.log
mon cluster log file = $dir/cluster.log
log to stderr = false
admin socket =
osd pool default size = 2
osd pool default min size = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon max pg per osd = 1000
mon allow pool delete = true
mon data avail warn = 2
mon data avail crit = 1
[client]
log file =
[mon]
mon data = $dir/mon
[mgr]
mgr data = $dir/mgr
mgr initial modules =
mgr stats period = 1
[osd]
osd data = $dir/osd.\$id
osd class update on start = false
bluestore block size = 10737418240
bluestore cache autotune = false
bluestore cache size = 134217728
[client.rgw]
rgw data = $dir/rgw
rgw frontends = beast endpoint=127.0.0.1:$rgw tcp_nodelay=1
END
export CEPH_CONF="$dir/ceph.conf"

# Runs a command until it succeeds.
until_done() {
    left=$wait
    until "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        test $left -gt 0 || { echo "start.sh: no success within $wait s: $*" >&2; exit 1; }
        sleep 1
    done
}
key() {
    ceph-authtool keyring --gen-key "$@"
}
is_active() {
    ceph pg stat | grep -Eq '^([0-9]+) pgs: \1 active\+clean;'
}

ceph-authtool --create-keyring keyring --gen-key -n mon. --cap mon 'allow *' >/dev/null
key -n client.admin --cap mon 'allow *' --cap mgr 'allow *' --cap osd 'allow *'
key -n mgr.x --cap mon 'allow profile mgr' --cap osd 'allow *'
key -n client.rgw --cap mon 'allow rw' --cap mgr 'allow rw' --cap osd 'allow rwx'
for n in 0 1 2; do
    key -n osd.$n --cap mon 'allow profile osd' --cap mgr 'allow profile osd' --cap osd 'allow *'
done
mkdir mgr rgw osd.0 osd.1 osd.2
fsid=$(sed -n 's/^fsid = //p' ceph.conf)
monmaptool --create --fsid "$fsid" --addv x "[v2:127.0.0.1:$mon2,v1:127.0.0.1:$mon1]" monmap >/dev/null
ceph-mon -i x --mkfs --monmap monmap --keyring keyring
ceph-mon -i x --pid-file "$dir/mon.pid"
until_done ceph --connect-timeout 5 -s
ceph-mgr -i x --pid-file "$dir/mgr.pid"
for n in 0 1 2; do
    uuid=$(cat /proc/sys/kernel/random/uuid)
    ceph osd new "$uuid" >/dev/null
    ceph-osd -i $n --mkfs --osd-uuid "$uuid" 2>>"$dir/mkfs.log"
    ceph-osd -i $n --pid-file "$dir/osd.$n.pid" >>"$dir/mkfs.log"
done
ceph osd pool create data 16 2>/dev/null
radosgw-admin -n client.rgw user create --uid=tests --display-name=tests --access-key=tests \
    --secret-key=onlyForTests >"$dir/user.log" 2>&1
radosgw -n client.rgw --pid-file "$dir/rgw.pid"
until_done curl -sf -m 2 "http://127.0.0.1:$rgw/"
curl -sf -m 20 -o /dev/null -X PUT -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' --aws-sigv4 aws:amz:us-east-1:s3 \
    -u tests:onlyForTests "http://127.0.0.1:$rgw/tests"
until_done is_active
