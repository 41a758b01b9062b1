package aggregator

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	informers "k8s.io/kube-aggregator/pkg/client/informers/externalversions"
)

// TestSeen: APIServices that come and go leave no more than a bounded number of names.
func TestSeen(t *testing.T) {
	t.Parallel()
	a := newAvailability(nil)
	services := informers.NewSharedInformerFactory(fake.NewClientset(), time.Hour).Apiregistration().V1().APIServices()
	if err := a.watch(services); err != nil {
		t.Fatal(err)
	}
	last := ""
	for i := range 2 * seenNames {
		s := &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("v%d.example.com", i)},
			Spec:       apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{}},
		}
		if err := a.informer.GetIndexer().Add(s); err != nil {
			t.Fatal(err)
		}
		if err := a.informer.GetIndexer().Delete(s); err != nil {
			t.Fatal(err)
		}
		last = s.Name
	}
	if n := a.seen.Len(); n != seenNames {
		t.Errorf("%d names are remembered, want %d", n, seenNames)
	}
	if _, ok := a.seen.Get(last); !ok {
		t.Error("the last one that was deleted is forgotten")
	}
}
