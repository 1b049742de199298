/** Before each file of the suites on GPUs: their small tables are gathered there, too. */
import { alwaysGatherOnDevices } from '../support/costs.js';

alwaysGatherOnDevices();
