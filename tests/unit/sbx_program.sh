#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Stands in for the program sbx: its sandboxes are folders below $SBX_STATE, and what is executed in one runs in
# mount namespaces with a /work, a /tmp and an /etc/profile of its own. Every call is noted in $SBX_STATE/calls.
# $SBX_FAULT_<verb> makes a verb misbehave; see `misbehave`.
set -u

fail() { echo "Error: $1" >&2; exit "${2:-1}"; }

misbehave() {
    case $1 in
    '') ;;
    prompt) printf 'Continue? [y/N] ' >&2; read -r answer || fail 'no answer' 3; read -r answer </dev/tty || fail 'no terminal' 3 ;;
    hang) exec sleep 1000 ;;
    stubborn) trap '' TERM INT HUP; echo waiting >&2; while :; do sleep 1000 & wait $!; done ;;
    fork) setsid sh -c 'sleep 1000' & (setsid setsid sleep 1000 &) ; exec sleep 1000 ;;
    child) sleep 1000 & ;;
    banner) echo 'A new version of sbx is available!'; echo 'Starting sandboxd daemon...' >&2 ;;
    notice) echo 'Starting sandboxd daemon...' >&2 ;;
    flood) yes 'something went wrong' | head -c "${SBX_FLOOD:-1000000000}" >&2; exit 7 ;;
    half) printf '{"error": {"code": 500, "mess' ; printf '{"error": {"code": 500, "mess' >&2; exit 8 ;;
    fail) fail 'it does not work' 9 ;;
    gone) fail "sandbox not found" 1 ;;
    silent) exit 10 ;;
    killed) kill -9 $$ ;;
    vanish) rm -f "$0" ;;
    esac
}

verb=$1
shift
printf '%s %s\n' "$verb" "$*" >>"$SBX_STATE/calls"
eval "fault=\${SBX_FAULT_$verb-}"
misbehave "$fault"

case $verb in
create)
    name=
    while [ "$1" != shell ]; do
        [ "$1" = --name ] && name=$2
        shift 2
    done
    [ -d "$2" ] || fail "workspace $2 does not exist"
    [ -n "$name" ] || fail 'no name'
    mkdir "$SBX_STATE/$name" "$SBX_STATE/$name/work" "$SBX_STATE/$name/tmp" || fail 'it exists'
    echo 'export PROFILE=read' >"$SBX_STATE/$name/profile"
    [ "${SBX_FAIL_LATE:-}" = y ] && fail 'the machine did not boot' 4
    echo "Created $name" ;;
ls)
    echo 'SANDBOX AGENT STATUS WORKSPACE'
    for folder in "$SBX_STATE"/*/; do
        [ -d "$folder" ] && echo "$(basename "$folder") shell running /tmp"
    done
    exit 0 ;;
policy) exit 0 ;;
version) echo 'sbx version 0.0 (stand-in)' ;;
rm)
    shift
    [ -d "$SBX_STATE/$1" ] || fail "sandbox $1 not found"
    rm -rf "${SBX_STATE:?}/$1" ;;
exec)
    interactive=
    [ "$1" = -i ] && { interactive=y; shift; }
    name=$1
    shift
    [ -d "$SBX_STATE/$name" ] || fail "sandbox $name not found"
    box=$SBX_STATE/$name
    [ -n "$interactive" ] || exec </dev/null
    exec bwrap --dev-bind / / --bind "$box/tmp" /tmp --bind "$box/work" /mnt --bind "$box/profile" /etc/profile \
        --chdir /mnt --setenv HOME /mnt -- "$@" ;;
*) fail "unknown command $verb" ;;
esac
