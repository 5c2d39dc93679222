#!/usr/bin/env bash
# One check of the deployment files. Usage: deploy_test.sh CHECK BUILD SOURCE
set -euo pipefail
check=$1 build=$2 source=$3
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
stage=$work/root

install_tree() { DESTDIR=$stage cmake --install "$build" >"$work/log" || { cat "$work/log"; exit 1; }; }

case $check in
  unit_exposure)
    install_tree
    # The threshold is in tenths: 20 means 2.0.
    systemd-analyze security --offline=true --threshold=20 --no-pager \
      "$stage/usr/lib/systemd/system/rjdbid.service" >"$work/out" || { cat "$work/out"; exit 1; }
    tail -1 "$work/out"
    grep -q 'Overall exposure level' "$work/out"
    # The same check must fail on an unhardened unit.
    printf '[Service]\nExecStart=/bin/true\n' >"$work/soft.service"
    ! systemd-analyze security --offline=true --threshold=20 --no-pager "$work/soft.service" >/dev/null
    ;;
  unit_verify)
    install_tree
    # Binaries are looked up on this machine: point the unit at the staged one.
    mkdir "$work/units"
    cp "$stage"/usr/lib/systemd/system/rjdbid* "$work/units/"
    sed -i "s#=/usr/sbin/rjdbid#=$stage/usr/sbin/rjdbid#" "$work/units/rjdbid.service"
    SYSTEMD_UNIT_PATH="$work/units:" systemd-analyze verify --man=no "$work/units/rjdbid.service" \
      "$work/units/rjdbid.socket" "$work/units/rjdbid-agent.socket" 2>&1 | grep -i rjdbi && exit 1 || true
    ;;
  shipped_config)
    "$build/daemon/rjdbid" --check-config --config "$source/deploy/config/rjdbid.yaml"
    printf 'no_such_key: 1\n' >"$work/bad.yaml"
    ! "$build/daemon/rjdbid" --check-config --config "$work/bad.yaml" 2>"$work/err"
    grep -q 'bad.yaml:1' "$work/err"
    ;;
  sysusers)
    install_tree
    systemd-sysusers --dry-run "$stage/usr/lib/sysusers.d/rjdbi.conf" 2>&1 | tee "$work/out"
    ! grep -qi 'invalid\|fail\|ignor' "$work/out"
    ;;
  install_tree)
    install_tree
    lib=usr/lib/$(gcc -print-multiarch)
    for file in usr/sbin/rjdbid usr/bin/rjctl usr/lib/systemd/system/rjdbid.service \
        usr/lib/systemd/system/rjdbid.socket usr/lib/systemd/system/rjdbid-agent.socket \
        usr/lib/sysusers.d/rjdbi.conf usr/lib/tmpfiles.d/rjdbi.conf \
        usr/share/man/man1/rjctl.1 usr/share/man/man8/rjdbid.8 usr/share/man/man5/rjdbid.yaml.5 \
        usr/share/man/man7/rjdbi-reasons.7 usr/include/rjdbi/probe.h \
        usr/share/bash-completion/completions/rjctl "$lib/rjdbi/librjdbi-agent.so"; do
      [ -e "$stage/$file" ] || { echo "not installed: $file"; (cd "$stage" && find . -type f | sort); exit 1; }
    done
    ls "$stage"/etc/rjdbid/rjdbid.yaml
    # Installed programs run from where they are, and find each other.
    "$stage/usr/bin/rjctl" --version
    ;;
  *) echo "unknown check $check"; exit 2 ;;
esac
