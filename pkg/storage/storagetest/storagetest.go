package storagetest

import (
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Run tests what every storage promises. Every call of open describes an empty
// storage, for one test that starts it and stops it: what open creates for it may
// be removed with that test.
func Run(t *testing.T, open func(testing.TB) controlplane.Storage, options ...Option) {
	s := newSuite(open, options)
	s.run(t, promises())
	t.Run("lifecycle", func(t *testing.T) { testLifecycle(t, s) })
	t.Run("lifecycle/starts and stops leave nothing", func(t *testing.T) { testCycles(t, s) })
}

// RunPersistent tests what only a storage that outlives its server promises.
func RunPersistent(t *testing.T, open func(testing.TB) controlplane.Storage, options ...Option) {
	s := newSuite(open, options)
	t.Run("restart", func(t *testing.T) {
		t.Run("keeps keys, revisions and history", func(t *testing.T) { testRestart(t, s) })
		t.Run("keeps compaction", func(t *testing.T) { testCompactedRestart(t, s) })
		t.Run("lets leases go on", func(t *testing.T) { testLeaseRestart(t, s) })
		t.Run("goes on above a revision", func(t *testing.T) { testRaise(t, s) })
	})
	if !open(t).Traits().Shared {
		t.Run("a second server is refused", func(t *testing.T) { testSecondServer(t, s) })
	}
}

// promises returns the tests of what every storage promises while it runs.
func promises() tests {
	return tests{
		"revisions": {
			"are global and one for each write": testRevisions,
			"are used once by 16 writers":       testRevisionsOnce,
			"never go back for a client":        testNeverBack,
			"show what was acknowledged":        testAcknowledged,
		},
		"writes": {
			"hold only at the revision they expect": testTransactions,
			"of 32 writers are all kept":            testConcurrentWriters,
			"of many deletes only one happens":      testConcurrentDeletes,
			"of several keys are all or nothing":    testSeveralKeys,
		},
		"reads": {
			"of what is missing have a revision": testMissingKeys,
			"of old revisions are exact":         testOldRevisions,
			"are newest, at least and exact":     testReads,
			"of an empty list can be followed":   testEmptyLists,
			"in pages show one revision":         testPages,
			"in pages end at a compaction":       testPagesCompacted,
			"as streams are as ranges":           testStreams,
		},
		"values": {
			"of 0 bytes to 1.5 MiB are kept": testSizes,
			"are copies":                     testValuesAreCopies,
		},
		"keys": {
			"hold every byte":                 testKeyBytes,
			"have bytewise order":             testKeyOrder,
			"of a prefix end at its last one": testPrefixes,
		},
		"compaction": {
			"ends older revisions only":     testCompaction,
			"is agreed on by servers":       testCompactionProtocol,
			"leaves a clean list and watch": testCleanList,
		},
		"watches": {
			"begin at their revision":                  testWatchHistory,
			"replay what came after, in order":         testWatchReplay,
			"tell the previous value":                  testWatchPrevious,
			"begin 5000 events back":                   testWatchFarBack,
			"miss nothing after a list":                testWatchStorm,
			"tell nothing that a read does not show":   testReadAfterEvent,
			"of what was compacted are refused":        testWatchCompacted,
			"survive compactions":                      testWatchAfterCompact,
			"of one client end without those of other": testIndependentClients,
		},
		"progress": {
			"reaches the newest revision": testProgress,
			"comes after its events":      testProgressOrder,
		},
		"leases": {
			"end the keys they hold, not before their time": testLeases,
			"end in the order of their time":                testLeaseOrder,
			"spare what was written again":                  testLeaseLeft,
			"that nobody granted are refused":               testLeaseUnknown,
		},
		"traits": {
			"MaxOps keys fit one transaction": testMaxOps,
			"Shared is seen by other servers": testShared,
			"CheapProgress answers at once":   testCheapProgress,
		},
		"scale": {
			"50000 objects under a prefix":         testManyObjects,
			"a watcher that stops reading":         testSlowWatcher,
			"a day of compactions bounds the size": testDay,
		},
	}
}
