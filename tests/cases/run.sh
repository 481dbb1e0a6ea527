#!/bin/bash
# Runs the cases one after another, and shows what became of each. usage: run.sh BRAID [CASE...]
# BRAID_CASES names some of them too. PY is a Python with braidfs and fsspec. What a case printed is shown if
# it failed; exit 1 if any did.
B=$(realpath "${1:?usage: run.sh BRAID [CASE...]}"); shift
cd "$(dirname "$0")" || exit 2
cases=("${@:-}"); [ -n "${cases[0]}" ] || read -ra cases <<<"${BRAID_CASES:-}"
[ ${#cases[@]} -gt 0 ] || for one in *.sh; do [ "$one" = run.sh ] || cases+=("${one%.sh}"); done
said=$(mktemp); trap 'rm -f "$said"' EXIT
failed=0
printf '%-34s %8s  %s\n' case seconds result
for one in "${cases[@]}"; do
  began=$(date +%s%N)
  # No case waits for longer by itself.
  timeout -k 10 "${BRAID_CASE_SECONDS:-900}" "./$one.sh" "$B" </dev/null >"$said" 2>&1
  code=$?
  ms=$((($(date +%s%N) - began) / 1000000))
  case $code in
    0) result=right ;;
    2) result='could not be run' ;;
    124 | 137) result='WRONG: no end'; failed=$((failed + 1)) ;;
    *) result="WRONG: exit $code"; failed=$((failed + 1)) ;;
  esac
  printf '%-34s %8s  %s\n' "$one" "$((ms / 1000)).$((ms / 100 % 10))" "$result"
  [ $code = 0 ] || tail -n 15 "$said" | sed 's/^/    /'
done
[ $failed = 0 ]
