package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

// TestWriteTenants: a line for each EtcdStorage, and below what is wrong.
func TestWriteTenants(t *testing.T) {
	t.Parallel()
	of := func(name string, ready metav1.Condition, u *v1alpha1.EtcdStorageUsage) v1alpha1.EtcdStorage {
		ready.Type = v1alpha1.ConditionReady
		return v1alpha1.EtcdStorage{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Now().Add(-12*time.Hour - 30*time.Minute))},
			Status:     v1alpha1.EtcdStorageStatus{Storage: "default", Used: u, Conditions: []metav1.Condition{ready}},
		}
	}
	keys, size := int64(10), resource.MustParse("256Mi")
	full := of("full", metav1.Condition{Status: "False", Reason: "LimitReached", Message: "delete\x1b[2J some"}, &v1alpha1.EtcdStorageUsage{Keys: 10, Bytes: 4096})
	full.Spec.Limits = v1alpha1.EtcdStorageLimits{Keys: &keys, Bytes: &size}
	cases := map[string]struct {
		reason string
		all    []v1alpha1.EtcdStorage
		want   string
	}{
		"none": {reason: "an empty table says nothing", want: "This server lends storage to nobody: create an EtcdStorage.\n"},
		"all": {
			reason: "what is wrong has room below",
			all: []v1alpha1.EtcdStorage{
				full, of("new", metav1.Condition{Status: "True"}, nil), {ObjectMeta: full.ObjectMeta},
				of("away", metav1.Condition{Status: "True", Reason: "DestinationUnknown", Message: "the front is away"}, nil),
			},
			want: "ETCDSTORAGE   READY     STORAGE   KEYS   OF   BYTES   OF      AGE\n" +
				"full          False     default   10     10   4Ki     256Mi   12h\n" +
				"new           True      default   -      -    -       -       12h\n" +
				"full          Unknown   -         -      -    -       -       12h\n" +
				"away          True      default   -      -    -       -       12h\n\n" +
				"full: LimitReached: delete\\x1b[2J some\n" +
				"away: DestinationUnknown: the front is away\n",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got bytes.Buffer
			if err := writeTenants(&got, c.all); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got.String()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}
