/*
 * Agreement about a Slurm job (src/slurm/answer.h, src/slurm/job_step.cc) as a model for spin.
 *
 * N nodes. Each is idle or works, and may change at any time; each knows a run of the job by its allocation file, and
 * learns of another one late. The leader asks; an answer may be lost or come twice. Slurm restarts the job at any time.
 * The leader acts only on N yes of N distinct nodes for one run, which is the one that squeue shows, and after its own
 * fresh yes.
 *
 * Checked in all interleavings: for each act, each node has answered, was idle when it did, and meant the run that is
 * acted on. With -DBROKEN_COUNT, -DBROKEN_RUN, -DBROKEN_TWICE or -DBROKEN_SQUEUE one check of the leader is left out;
 * then spin finds an error. For tests/model/run:
 * PAN -E
 * CHECK
 * FAULT -DBROKEN_COUNT
 * FAULT -DBROKEN_RUN
 * FAULT -DBROKEN_TWICE
 * FAULT -DBROKEN_SQUEUE
 */
#define N 2

bit idle[N];       /* by the newest sample of the node */
byte seen_run[N];  /* by the allocation file on the node */
byte job_run = 0;  /* as Slurm knows it */
bit was_idle[N];   /* ghost: the node was idle when it answered */
byte for_run[N];   /* ghost: and answered for this run */

chan answers = [2 * N] of { byte, byte, bit };  /* node, run, yes */

active proctype slurm() {
  if
  :: atomic { job_run = 1 }
  :: skip
  fi
}

/* The Prolog of a new run comes some time after Slurm has begun it; a new run works at first. */
proctype node(byte me) {
  byte changes = 0;
  do
  :: atomic { changes < 2 -> changes++; idle[me] = 1 - idle[me] }
  :: atomic { seen_run[me] < job_run -> seen_run[me] = job_run; idle[me] = 0 }
  :: break
  od
}

/* Says what is so at that moment: never, once or twice. */
proctype respond(byte me) {
  atomic {
    was_idle[me] = idle[me];
    for_run[me] = seen_run[me];
    if
    :: answers!me, seen_run[me], idle[me]
    :: answers!me, seen_run[me], idle[me]; answers!me, seen_run[me], idle[me]
    :: skip
    fi
  }
}

active proctype leader() {
  byte n, r, got, expected, i;
  bit yes, good, heard[N];
  atomic {
    i = 0;
    do
    :: i < N -> run node(i); i++
    :: else -> break
    od
  }
  atomic {  /* its rule has fired */
    idle[0] -> expected = seen_run[0];
    good = 1;
    i = 0;
    do
    :: i < N -> run respond(i); i++
    :: else -> break
    od
  }
  do
  :: atomic {
      answers?n, r, yes;
#ifndef BROKEN_TWICE
      if
      :: heard[n] -> good = 0
      :: else -> skip
      fi;
#endif
      heard[n] = 1;
      got++;
#ifndef BROKEN_RUN
      if
      :: r != expected -> good = 0
      :: else -> skip
      fi;
#endif
      if
      :: !yes -> good = 0
      :: else -> skip
      fi
    }
  :: break  /* five seconds are over */
  od;
#ifndef BROKEN_COUNT
  if
  :: got != N -> good = 0
  :: else -> skip
  fi;
#endif
  if
  :: !good -> skip
  :: else ->
    atomic {
      if
#ifdef BROKEN_SQUEUE
      :: idle[0] ->
#else
      :: job_run == expected && idle[0] && seen_run[0] == expected ->
#endif
        i = 0;
        do
        :: i < N -> assert(heard[i] && was_idle[i] && for_run[i] == job_run); i++
        :: else -> break
        od
      :: else -> skip
      fi
    }
  fi
}
