/*
 * Agreement about a Slurm job (src/slurm/answer.h, src/slurm/ask_nodes.cc, src/slurm/job_step.cc) as a model for spin.
 *
 * N nodes. Each idles or works, and may change at any time; each knows a run of the job by its allocation file, and
 * learns of another one late. A watcher may be killed, and with -DRESTART started again. The leader asks, and asks again: each question
 * has a pipe of its own. An answer may be lost, come twice, or come when nobody waits for it any more. The leader may be
 * killed; then it begins anew. Slurm restarts the job at any time. The leader acts only on N yes of N distinct nodes to
 * one question for one run, which is the one that squeue shows, if no more than five seconds have passed, and after its
 * own fresh yes.
 *
 * Checked in all interleavings: for each act, each node has answered this question, idled when it did, and meant the
 * run that is acted on; squeue showed that run; the leader's own GPUs idle at that moment; the answers are not old.
 * Slurm has no verb for one run alone: a restart between squeue and the verb is not excluded, only what squeue showed.
 * With one of the faults below one check is left out; then spin finds an error. For tests/model/run:
 * PAN -E
 * CHECK
 * CHECK -DRESTART
 * FAULT -DBROKEN_COUNT
 * FAULT -DBROKEN_RUN
 * FAULT -DBROKEN_TWICE
 * FAULT -DBROKEN_SQUEUE
 * FAULT -DBROKEN_SAMPLE
 * FAULT -DBROKEN_LATE
 * FAULT -DBROKEN_AGE
 * FAULT -DBROKEN_OWN
 */
#define N 2
#define ASKS 2
#define AT(question, node) ((question) * N + (node))

bit idle[N];       /* what is so */
bit sample[N];     /* the newest sample in turn says idle */
bit up = 1;        /* the watcher of the last node runs */
byte seen_run[N];  /* by the allocation file on the node */
byte job_run = 0;  /* as Slurm knows it */
/* Ghosts, of each question and node. */
bit said_idle[ASKS * N];
byte said_run[ASKS * N];

chan pipe[ASKS] = [2 * N] of { byte, byte, bit };  /* node, run, yes */

/* All that happens to the nodes, in any order. The Prolog of a new run comes some time after Slurm has begun it; a new
 * run works at first. */
active proctype world() {
  byte changes = 0;
  bit killed = 0;
  atomic { idle[0] = 1; idle[1] = 1; sample[0] = 1; sample[1] = 1 }
end:
  do
  :: atomic { changes < 2 -> changes++; idle[0] = 1 - idle[0] }
  :: atomic { changes < 2 -> changes++; idle[1] = 1 - idle[1] }
  :: atomic { job_run == 0 -> job_run = 1 }
  :: atomic { seen_run[0] < job_run -> seen_run[0] = job_run; idle[0] = 0; sample[0] = 0 }
  :: atomic { seen_run[1] < job_run -> seen_run[1] = job_run; idle[1] = 0; sample[1] = 0 }
  :: atomic { up && !killed -> killed = 1; up = 0 }
#ifdef RESTART
  :: atomic { !up -> up = 1; sample[1] = 0 }
#endif
  od
}

/* Says what is so at that moment, by a new sample: never, once or twice. */
proctype respond(byte me, question) {
  bit yes;
  atomic {
#ifdef BROKEN_SAMPLE
    yes = sample[me];
#else
    yes = idle[me];
#endif
    said_idle[AT(question, me)] = idle[me];
    said_run[AT(question, me)] = seen_run[me];
    if
    :: me == 0 || up -> pipe[question]!me, seen_run[me], yes
    :: question == 0 && (me == 0 || up) -> pipe[question]!me, seen_run[me], yes; pipe[question]!me, seen_run[me], yes
    :: skip
    fi
  }
}

active proctype leader() {
  byte n, r, got, expected, i, question;
  bit yes, good, old, heard[N];
ask:
  atomic {  /* its rule has fired */
    idle[0] -> expected = seen_run[0];
    good = 1;
    got = 0;
    old = 0;
    heard[0] = 0;
    heard[1] = 0;
    run respond(0, question);
    run respond(1, question)
  }
  do
  :: atomic {
#ifdef BROKEN_LATE
      pipe[0]?n, r, yes;
#else
      pipe[question]?n, r, yes;
#endif
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
  :: break       /* srun has ended, or its time is over */
  :: goto again  /* the leader was killed */
  od;
#ifndef BROKEN_COUNT
  if
  :: got != N -> goto again
  :: else -> skip
  fi;
#endif
  if
  :: !good -> goto again
  :: else -> skip
  fi;
  atomic {  /* squeue, which may take its time, as AdminComment may */
    if
    :: old = 1
    :: skip
    fi;
#ifdef BROKEN_SQUEUE
    n = job_run
#else
    if
    :: job_run != expected -> goto again
    :: else -> n = job_run
    fi
#endif
  }
  atomic {  /* its own sample of now, then the verb */
#ifndef BROKEN_AGE
    if
    :: old -> goto again
    :: else -> skip
    fi;
#endif
#ifndef BROKEN_OWN
    if
    :: !idle[0] || seen_run[0] != expected -> goto again
    :: else -> skip
    fi;
#endif
    assert(!old && idle[0] && n == expected);
    i = 0;
    do
    :: i < N -> assert(heard[i] && said_idle[AT(question, i)] && said_run[AT(question, i)] == expected); i++
    :: else -> break
    od;
    goto done
  }
again:
  atomic {
    n = 0;
    r = 0;
    yes = 0;
    got = 0;
    good = 0;
    old = 0;
    expected = 0;
    if
    :: question + 1 < ASKS -> question++; goto ask
    :: else -> skip
    fi
  };
done:
  skip
}
