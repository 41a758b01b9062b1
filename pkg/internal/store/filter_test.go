package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// broken is a store that has an error for everything.
type broken struct {
	storage.Interface
	err error
}

func (b broken) GetList(context.Context, string, storage.ListOptions, runtime.Object) error {
	return b.err
}

func (b broken) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	return nil, b.err
}

func TestFilterWithholdsNames(t *testing.T) {
	t.Parallel()
	unreadable := errors.New("unable to transform key /registry/configmaps/default/hidden")
	for name, tc := range map[string]struct {
		reason string
		err    error
		is     func(error) bool
	}{
		"internal":    {"who may not get an object does not learn its name", storage.NewInternalError(unreadable), apierrors.IsInternalError},
		"corrupt":     {"who may not get an object does not learn its name", storage.NewCorruptObjError("hidden", unreadable), apierrors.IsInternalError},
		"plain":       {"errors of unknown kind may tell anything", unreadable, apierrors.IsInternalError},
		"status":      {"500 tells what an error of unknown kind does", apierrors.NewInternalError(unreadable), apierrors.IsInternalError},
		"not filled":  {"why a cache is not filled may be such an error", apierrors.NewTooManyRequests(unreadable.Error(), 3), threeSeconds},
		"expired":     {"clients start again", apierrors.NewResourceExpired("too old"), apierrors.IsResourceExpired},
		"too new":     {"clients wait", storage.NewTooLargeResourceVersionError(9, 8, 1), storage.IsTooLargeResourceVersion},
		"unreachable": {"it is known to be no object's fault", storage.NewUnreachableError("/registry", 1), storage.IsUnreachable},
		"canceled":    {"nobody waits for the answer", fmt.Errorf("list: %w", context.Canceled), func(err error) bool { return errors.Is(err, context.Canceled) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			filter := &Filter{Resource: schema.GroupResource{Resource: "configmaps"}}
			s := &filtering{Interface: broken{err: tc.err}, resource: filter.Resource}
			ctx := WithFilter(t.Context(), filter)
			if err := s.GetList(ctx, "", storage.ListOptions{}, &metav1.List{}); !errors.Is(err, tc.err) || filter.Pending() {
				t.Errorf("a list that is not filtered: got %v, want it as it is", err)
			}
			filter.Keep(func(context.Context, string, string) (bool, error) { return true, nil })
			if !filter.Pending() {
				t.Error("nobody has filtered yet")
			}
			_, watched := s.Watch(ctx, "", storage.ListOptions{})
			for how, err := range map[string]error{
				"list": s.GetList(ctx, "", storage.ListOptions{}, &metav1.List{}), "watch": watched,
			} {
				if !tc.is(err) || strings.Contains(err.Error(), "hidden") {
					t.Errorf("%s: %s: got %v", how, tc.reason, err)
				}
			}
			if filter.Pending() {
				t.Error("the store filtered, and the filter does not know")
			}
		})
	}
}

func threeSeconds(err error) bool {
	seconds, ok := apierrors.SuggestsClientDelay(err)
	return apierrors.IsTooManyRequests(err) && ok && seconds == 3
}
