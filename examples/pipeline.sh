#!/bin/sh
# A pipeline of commands: measurements go in, alarms come out, and nothing is lost on the way.
#
#     sh examples/pipeline.sh
set -eu

# Measurements, with a property that filters can read.
for degrees in 19 31 22 35; do
    echo "{\"body\": \"kitchen $degrees\", \"properties\": {\"degrees\": \"$degrees\"}}"
done | aerobee produce measurements --format json

# What is too warm becomes an alarm. Members of the group `alarms` share the work, so this line may
# run on several machines; without `--count` it runs until Ctrl-C.
aerobee consume measurements --group alarms --sql "degrees > 30" --count 2 |
    aerobee produce alarms_to_call --tag warm

aerobee consume alarms_to_call --group caller --count 2 | sort
