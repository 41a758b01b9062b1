package controller

import (
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	webappv1 "example.com/guestbook/api/v1"
)

// newBook is a guestbook of two servers in a namespace of its own.
func newBook() *webappv1.Guestbook {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "guestbook-"}}
	Expect(k8sClient.Create(ctx, namespace)).To(Succeed())
	return &webappv1.Guestbook{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "hut"},
		Spec:       webappv1.GuestbookSpec{Title: "The <hut>", Greeting: "Hello", Replicas: new(int32(2))},
	}
}

// beside is an empty object in the namespace of a guestbook.
func beside[T client.Object](book *webappv1.Guestbook, o T, name string) T {
	o.SetNamespace(book.Namespace)
	o.SetName(name)
	return o
}

// object is a pointer to a type of object.
type object[T any] interface {
	*T
	client.Object
}

// now reads an object, and leaves nothing of what it was before.
func now[T any, P object[T]](o P) func() (P, error) {
	return func() (P, error) {
		fresh := P(new(T))
		err := k8sClient.Get(ctx, client.ObjectKeyFromObject(o), fresh)
		if err == nil {
			*o = *fresh
		}
		return o, err
	}
}

// write changes an object, again when somebody else wrote it in between.
func write[T any, P object[T]](o P, change func(P)) {
	GinkgoHelper()
	Eventually(func() error {
		if _, err := now(o)(); err != nil {
			return err
		}
		change(o)
		return k8sClient.Update(ctx, o)
	}).Should(Succeed())
}

var _ = Describe("Guestbook Controller", func() {
	var book *webappv1.Guestbook
	var page, directory *corev1.ConfigMap
	var servers *appsv1.Deployment

	BeforeEach(func() {
		book = newBook()
		page = beside(book, &corev1.ConfigMap{}, "hut-page")
		directory = beside(book, &corev1.ConfigMap{}, Directory)
		servers = beside(book, &appsv1.Deployment{}, "hut")
		Expect(k8sClient.Create(ctx, book)).To(Succeed())
	})

	It("makes a page, servers and a line in the directory", func() {
		Eventually(now(servers)).Should(HaveField("Spec.Replicas", HaveValue(BeEquivalentTo(2))))
		Expect(metav1.IsControlledBy(servers, book)).To(BeTrue())
		Expect(servers.Spec.Template.Spec.Containers[0].Args).To(ContainElement("--storage=Memory"))

		Eventually(now(page)).Should(HaveField("Data",
			HaveKeyWithValue("index.html", "<h1>The &lt;hut&gt;</h1>\n<p>Hello</p>\n")))
		Expect(metav1.IsControlledBy(page, book)).To(BeTrue())

		Eventually(now(directory)).Should(HaveField("Data", HaveKeyWithValue("hut", "The <hut>")))
		Expect(directory.OwnerReferences).To(BeEmpty())
	})

	It("is available when all servers serve", func() {
		available := func() (*metav1.Condition, error) {
			_, err := now(book)()
			return meta.FindStatusCondition(book.Status.Conditions, webappv1.ConditionAvailable), err
		}
		Eventually(available).Should(HaveValue(And(
			HaveField("Status", metav1.ConditionFalse), HaveField("Message", "0 of 2 servers serve the page"))))

		By("doing what the controller of Deployments does in a cluster")
		Eventually(func() error {
			if _, err := now(servers)(); err != nil {
				return err
			}
			servers.Status.Replicas, servers.Status.ReadyReplicas = 2, 2
			return k8sClient.Status().Update(ctx, servers)
		}).Should(Succeed())
		Eventually(available).Should(HaveValue(HaveField("Status", metav1.ConditionTrue)))
		Expect(book.Status.ReadyReplicas).To(BeEquivalentTo(2))
	})

	It("follows the guestbook", func() {
		Eventually(now(servers)).Should(HaveField("Spec.Replicas", HaveValue(BeEquivalentTo(2))))
		write(book, func(b *webappv1.Guestbook) { b.Spec.Title, b.Spec.Replicas = "The hut", new(int32(0)) })

		Eventually(now(servers)).Should(HaveField("Spec.Replicas", HaveValue(BeEquivalentTo(0))))
		Eventually(now(page)).Should(HaveField("Data", HaveKeyWithValue("index.html", HavePrefix("<h1>The hut</h1>"))))
		Eventually(now(directory)).Should(HaveField("Data", HaveKeyWithValue("hut", "The hut")))
	})

	It("repairs what somebody else changed", func() {
		Eventually(now(page)).Should(HaveField("Data", HaveKey("index.html")))
		write(page, func(p *corev1.ConfigMap) { p.Data = map[string]string{"advertisement.html": "<blink>"} })
		Eventually(now(page)).Should(HaveField("Data", And(HaveKey("index.html"), Not(HaveKey("advertisement.html")))))
	})

	It("leaves the directory before it goes", func() {
		other := beside(book, &webappv1.Guestbook{Spec: book.Spec}, "inn")
		Expect(k8sClient.Create(ctx, other)).To(Succeed())
		Eventually(now(directory)).Should(HaveField("Data", And(HaveKey("hut"), HaveKey("inn"))))
		Expect(now(book)()).To(HaveField("Finalizers", ConsistOf(webappv1.Finalizer)))

		Expect(k8sClient.Delete(ctx, book)).To(Succeed())
		Eventually(func() error {
			_, err := now(book)()
			return err
		}).Should(Satisfy(apierrors.IsNotFound))
		Expect(now(directory)()).To(HaveField("Data", And(Not(HaveKey("hut")), HaveKey("inn"))))
	})
})

var _ = Describe("Guestbook API", func() {
	It("has defaults", func() {
		book := newBook()
		book.Spec = webappv1.GuestbookSpec{Title: "The hut"}
		Expect(k8sClient.Create(ctx, book)).To(Succeed())
		Expect(book.Spec).To(Equal(webappv1.GuestbookSpec{
			Title: "The hut", Replicas: new(int32(1)), MaxReplicas: new(int32(5)), Storage: "Memory",
		}))
	})

	DescribeTable("refuses",
		func(change func(*webappv1.GuestbookSpec), message string) {
			book := newBook()
			change(&book.Spec)
			Expect(k8sClient.Create(ctx, book)).To(And(
				Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring(message))))
		},
		Entry("no title", func(s *webappv1.GuestbookSpec) { s.Title = "" },
			"spec.title in body should be at least 1 chars long"),
		Entry("more servers than the default of the most", func(s *webappv1.GuestbookSpec) { s.Replicas = new(int32(6)) },
			"replicas must not be more than maxReplicas"),
		Entry("a storage there is not", func(s *webappv1.GuestbookSpec) { s.Storage = "Tape" },
			`supported values: "Memory", "Disk"`),
	)

	It("takes the sample", func() {
		text, err := os.ReadFile("../../config/samples/webapp_v1_guestbook.yaml")
		Expect(err).NotTo(HaveOccurred())
		sample := &webappv1.Guestbook{}
		Expect(yaml.UnmarshalStrict(text, sample)).To(Succeed())
		sample.Namespace = newBook().Namespace
		Expect(k8sClient.Create(ctx, sample)).To(Succeed())
	})

	It("keeps the storage", func() {
		book := newBook()
		Expect(k8sClient.Create(ctx, book)).To(Succeed())
		Expect(k8sClient.Patch(ctx, book, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"storage":"Disk"}}`)))).
			To(MatchError(ContainSubstring("storage cannot be changed")))
	})
})
