// The controller suite of the Go JobSet, with jobset-controller as the subject.
package controllertest

import (
	"context"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/test/program"
)

// What the cases use.
var (
	k8sClient client.Client
	ctx       context.Context
)

func TestController(t *testing.T) {
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "Controller Suite")
}

var _ = ginkgo.BeforeSuite(func() {
	ctx = context.Background()
	environment := &envtest.Environment{CRDInstallOptions: program.CRDs()}
	// One case expects that the API server refuses to resize a JobSet with the gate off: that is the admission service's work.
	isAdmitted := strings.HasPrefix(program.Gates(), "ElasticJobSet=")
	if isAdmitted {
		environment.WebhookInstallOptions = program.Registration()
	}
	config, err := environment.Start()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(environment.Stop)
	gomega.Expect(jobset.AddToScheme(scheme.Scheme)).To(gomega.Succeed())
	k8sClient, err = client.New(config, client.Options{Scheme: scheme.Scheme})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())

	stop, err := program.StartController(environment)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(stop)
	if isAdmitted {
		stop, err := program.StartWebhook(environment.KubeConfig, environment.WebhookInstallOptions)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		ginkgo.DeferCleanup(stop)
	}
})
