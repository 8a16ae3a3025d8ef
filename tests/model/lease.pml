/* The lease queue of docs/leases.md: waiters take GPUs under the folder lock, sleep until something happens that concerns
   them, and may be killed at any step. spin checks every order of steps. A GPU with two holders fails an assertion. A
   waiter that sleeps for ever is an invalid end state: timers, which would hide a lost wake-up, are left out. So are
   sharing, foreign use and stopped waiters.

   For tests/model/run, with FAULT=N one step is broken:
   CHECK -DKILLS=0 -DRANK=1
   CHECK -DKILLS=1 -DRANK=0 -DJOB=0
   CHECK -DKILLS=1 -DRANK=1 -DJOB=0
   LONG -DKILLS=1 -DRANK=1
   FAULT -DFAULT=1 -DKILLS=0 -DRANK=0
   FAULT -DFAULT=2 -DKILLS=0 -DRANK=1
   FAULT -DFAULT=3 -DKILLS=0 -DRANK=0 -DJOB=0
   FAULT -DFAULT=4 -DKILLS=0 -DRANK=1
   FAULT -DFAULT=5 -DKILLS=0 -DRANK=1
   FAULT -DFAULT=6 -DKILLS=0 -DRANK=1
   Faults:
   1 takes GPUs without the folder lock
   2 listens to a wake pipe without a check that it is still there
   3 gives nothing back to a waiter ahead
   4 does not close its wake pipe when it leaves the queue
   5 does not look again when a file was reported as closed and is still locked
   6 does not look again for files that were closed right before its watch began */

#ifndef FAULT
#define FAULT 0
#endif
#ifndef RANK
#define RANK 1      /* of the last waiter; 0: a higher priority than the others */
#endif
#ifndef JOB
#define JOB 1       /* another job has both GPUs at first */
#endif
#ifndef KILLS
#define KILLS 1
#endif
#define NEAR 2      /* so many at the head of the queue watch the folder */
#define W 3
#define G 2
#define BIT(n) (1 << (n))
#define COUNT(gpus) (((gpus) & 1) + (((gpus) >> 1) & 1))

byte lock;          /* the folder lock: 0, or its holder + 1 */
byte held[G];       /* per GPU: bits of those who have a locked lease file */
byte closing;       /* so many processes' files are reported as closed, and still locked */
bool ticket[W];     /* locked ticket, with */
byte turn[W];       /*   its place: smaller goes first */
byte missing[W];    /*   how many GPUs it lacks */
byte wants[W];      /*   which it would take */
bool pipe[W];       /* wake pipe beside the ticket */
bool watches[W];    /* has an inotify instance */
bool changed[W];    /* which has an event */
byte listens[W];    /* 0, or the waiter whose pipe it has open + 1 */
bool hung_up[W];    /* that pipe was closed */
bool die[W];
byte last;

inline report() {  /* the folder changed */
  for (w : 0 .. W - 1) { if :: watches[w] -> changed[w] = true :: else fi }
}
inline ring(who) {
  pipe[who] = false;
  for (w : 0 .. W - 1) { if :: listens[w] == who + 1 -> hung_up[w] = true :: else fi }
}

inline take(gpu) {
  d_step {
    if
    :: COUNT(kept) < count && (free & accepts & ~spoken & BIT(gpu)) ->
      held[gpu] = held[gpu] | BIT(me);
      assert(held[gpu] == BIT(me));  /* nobody has a GPU that another one has */
      kept = kept | BIT(gpu); report()
    :: else
    fi;
    w = 0
  }
}

proctype waiter(byte me; byte count; byte accepts; byte rank) {
  byte w, g, free, kept, spoken, near, ahead, old_missing, old_wants, n;
  bool woken, begun;
  {
    skip;
again:
    atomic { FAULT == 1 || lock == 0 -> if :: FAULT != 1 -> lock = me + 1 :: else fi }
    d_step { woken = changed[me]; changed[me] = false }
    if
    :: !ticket[me] ->
      d_step {
        last++; turn[me] = rank * 16 + last; missing[me] = count; wants[me] = accepts; ticket[me] = true; pipe[me] = true;
        report(); w = 0
      }
    :: else
    fi;
    /* Scan: what is free, and what those ahead want. */
    d_step {
      free = 0; kept = 0; spoken = 0; near = 0; ahead = 0;
      for (g : 0 .. G - 1) {
        if :: held[g] == 0 -> free = free | BIT(g) :: else fi;
        if :: held[g] & BIT(me) -> kept = kept | BIT(g) :: else fi
      }
      for (w : 0 .. W - 1) {
        if
        :: w != me && ticket[w] && missing[w] > 0 && turn[w] < turn[me] -> spoken = spoken | wants[w]
        :: else
        fi
      }
      g = 0; w = 0
    }
    /* Give back what somebody ahead wants. */
    if
    :: FAULT != 3 && (kept & spoken) ->
      d_step {
        for (g : 0 .. G - 1) { if :: kept & spoken & BIT(g) -> held[g] = held[g] & ~BIT(me) :: else fi }
        kept = kept & ~spoken; report(); g = 0; w = 0
      }
    :: else
    fi;
    /* Take what is free and not spoken for, one lease file after the other. */
    take(0);
    take(1);
    /* Write into the ticket what is still missing. */
    d_step {
      old_missing = missing[me]; old_wants = wants[me];
      missing[me] = count - COUNT(kept); wants[me] = accepts & ~kept;
      if :: missing[me] != old_missing || wants[me] != old_wants -> report() :: else fi;
      w = 0
    }
    if
    :: missing[me] > 0 && (missing[me] != old_missing || wants[me] != old_wants) ->
      d_step { ring(me); w = 0 }
      pipe[me] = true
    :: else
    fi;
    /* Who is two places ahead of us among those who want all that we want? Nobody, if we keep something. */
    d_step {
      free = 0; spoken = 0; near = 0; ahead = 0; n = 0;
      do
      :: near < NEAR ->
        ahead = W;  /* the next one ahead of those that we have */
        for (w : 0 .. W - 1) {
          if
          :: w != me && ticket[w] && missing[w] > 0 && turn[w] < turn[me] && (wants[me] & ~wants[w]) == 0 &&
             (n & BIT(w)) == 0 && (ahead == W || turn[w] > turn[ahead]) -> ahead = w
          :: else
          fi
        }
        if
        :: ahead == W -> break
        :: else -> n = n | BIT(ahead); near++
        fi
      :: else -> break
      od;
      if :: kept != 0 || near < NEAR -> ahead = W :: else fi;
      kept = 0; near = 0; n = 0; old_missing = 0; old_wants = 0; w = 0;
      if :: lock == me + 1 -> lock = 0 :: else fi
    }
    if
    :: missing[me] == 0 -> goto served
    :: else
    fi;
    if
    :: ahead < W ->
      d_step { watches[me] = false; changed[me] = false; old_missing = missing[ahead]; old_wants = wants[ahead] }
      d_step { hung_up[me] = false; listens[me] = (FAULT == 2 || pipe[ahead] -> ahead + 1 : 0) }
      if
      :: FAULT != 2 && (!ticket[ahead] || missing[ahead] != old_missing || wants[ahead] != old_wants) -> listens[me] = 0; goto again
      :: else
      fi;
      if
      :: listens[me] == 0 -> goto again  /* no pipe: it looks now and then */
      :: hung_up[me] -> listens[me] = 0; goto again
      fi
    :: else ->
      if
      :: !watches[me] -> d_step { watches[me] = true; changed[me] = false; begun = FAULT != 6 }; goto again
      :: else
      fi;
      if
      :: changed[me] -> goto again
      :: FAULT != 5 && woken && closing == 0 -> goto again  /* reported before the lock was gone: looks again a little later */
      :: begun && closing == 0 -> begun = false; goto again
      fi
    fi;
served:
    atomic { lock == 0 -> lock = me + 1 }
    d_step { ticket[me] = false; report(); w = 0 }
    d_step { if :: FAULT != 4 -> ring(me) :: else fi; w = 0 }
    lock = 0;
    skip  /* the job works */
  } unless { die[me] };
  /* The end, of the job or by a kill: the kernel reports the files, drops the locks, and closes the pipe. */
  d_step { closing++; report(); w = 0 }
  d_step {
    if :: lock == me + 1 -> lock = 0 :: else fi;
    for (g : 0 .. G - 1) { held[g] = held[g] & ~BIT(me) }
    ticket[me] = false; watches[me] = false; listens[me] = 0; closing--; w = 0; g = 0
  }
  d_step { if :: FAULT != 4 -> ring(me) :: else fi; w = 0 }
}

proctype job() {  /* has both GPUs when the others come */
  byte w;
  d_step { closing++; report(); w = 0 }
  d_step { held[0] = 0; held[1] = 0; closing-- }
}

proctype killer(byte kills) {
  byte victim;
  do
  :: kills > 0 -> select(victim : 0 .. W - 1); die[victim] = true; kills--
  :: break
  od
}

init {
  atomic {
    if :: JOB -> held[0] = BIT(W); held[1] = BIT(W); run job() :: else fi;
    run waiter(0, 1, 3, 1);  /* one GPU, either */
    run waiter(1, 2, 3, 1);  /* both */
    run waiter(2, 2 - RANK, 3, RANK);  /* either; with a higher priority both */
    run killer(KILLS)
  }
}
